"""Fingerprints of molecules, stored as a sparse matrix."""

import sys
import time

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Fingerprints(Dataset):
    def __init__(self, rows=20000, columns=2048):
        self.x = scipy.sparse.random(rows, columns, 0.02, format="csr", dtype=np.float32)
        self.y = scipy.sparse.random(rows, 10, 0.2, format="csr", dtype=np.float32)

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, index):
        x, y = self.x[index], self.y[index]
        return x.toarray()[0], y.toarray()[0]


class Together(Fingerprints):
    def __getitems__(self, indices):
        x, y = self.x[indices].toarray(), self.y[indices].toarray()
        return torch.from_numpy(x), torch.from_numpy(y)


model = nn.Sequential(nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
if TWIN:
    loader = DataLoader(Together(), batch_size=128, shuffle=True, collate_fn=lambda batch: batch)
else:
    loader = DataLoader(Fingerprints(), batch_size=128, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
