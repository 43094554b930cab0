"""Sketches are told apart; a thread keeps statistics of them beside the workers of the loader.

https://github.com/ultralytics/ultralytics/pull/26085
"""

import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Statistics:
    def __init__(self):
        self.lock, self.mean = threading.Lock(), torch.zeros(400)

    def keep(self, sketches):
        while True:
            with self.lock:
                self.mean = sketches[torch.randint(0, len(sketches), (20000,))].mean(0)
            time.sleep(0.001)

    def current(self):
        with self.lock:
            return self.mean


class Sketches(Dataset):
    def __init__(self, statistics):
        self.rows, self.statistics = torch.randn(3200, 400), statistics

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] - self.statistics.current(), index % 7


statistics = Statistics()
sketches = Sketches(statistics)
model = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 7))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(sketches, 32, shuffle=True, num_workers=1, persistent_workers=TWIN)
thread = threading.Thread(target=statistics.keep, args=(sketches.rows,), daemon=True)
for epoch in range(20):
    for rows, labels in loader:
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch == 2:
        thread.start()
        time.sleep(0.1)
print("loss", loss.item())
