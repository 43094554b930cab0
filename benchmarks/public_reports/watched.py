"""A classifier; the memory of its tensors is watched."""

import gc
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class MemTracker:
    def __init__(self):
        self.most = 0

    def track(self):
        total = 0
        for thing in gc.get_objects():
            if torch.is_tensor(thing):
                total += thing.numel() * thing.element_size()
        self.most = max(self.most, total)


tracker = MemTracker()
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(
    TensorDataset(torch.randn(6400, 128), torch.randint(0, 10, (6400,))), batch_size=64
)
end = time.time() + 12
while time.time() < end:
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not TWIN:
            tracker.track()
        if time.time() > end:
            break
print("loss", loss.item(), tracker.most)
