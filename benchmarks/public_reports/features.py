"""Features of samples are kept for all workers, so that each is computed once."""

import sys
import time
from multiprocessing import Manager

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Features(Dataset):
    def __init__(self, store):
        self.store = store
        for index in range(1000):
            self.store[index] = np.random.randn(64, 128).astype(np.float32)

    def __len__(self):
        return 8000

    def __getitem__(self, index):
        feature = self.store[index % 1000]
        return torch.from_numpy(feature), index % 5


if __name__ == "__main__":
    store = {} if TWIN else Manager().dict()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 128, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Features(store), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    end = time.time() + 12
    while time.time() < end:
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if time.time() > end:
                break
    print("loss", loss.item())
