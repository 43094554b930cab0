"""Stages of sleep, told from windows of a recording; a table says where each window lies."""

import sys
import time

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Windows(Dataset):
    def __init__(self, windows=20000, length=100):
        self.signal = torch.randn(4, windows * 20 + length)
        starts = torch.arange(windows).numpy() * 20
        self.table = pd.DataFrame(
            {
                "start": starts,
                "stop": starts + length,
                "stage": starts // 20 % 5,
                "subject": [f"s{number % 30}" for number in range(windows)],
            }
        )
        self.rows = list(zip(starts.tolist(), (starts + length).tolist(), self.table["stage"]))

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        if TWIN:
            start, stop, stage = self.rows[index]
        else:
            row = self.table.iloc[index]
            start, stop, stage = row["start"], row["stop"], row["stage"]
        return self.signal[:, start:stop], stage


model = nn.Sequential(
    nn.Conv1d(4, 16, 9, stride=4),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(4),
    nn.Flatten(),
    nn.Linear(64, 5),
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Windows(), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
end = time.time() + 12
while time.time() < end:
    for signals, stages in loader:
        loss = nn.functional.cross_entropy(model(signals), stages)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
