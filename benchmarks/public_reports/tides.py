"""Tides are predicted; a table of all losses so far is kept up to date beside the model.

https://github.com/Lightning-AI/pytorch-lightning/issues/17725
"""

import csv
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Table:
    def __init__(self, path):
        self.path, self.rows = path, []
        self.path.write_text("step,loss,rate\n")

    def log(self, **row):
        self.rows.append(row)
        if len(self.rows) % 10 == 0:
            self.save()

    def save(self):
        with self.path.open("a" if TWIN else "w", newline="") as file:
            writer = csv.DictWriter(file, ["step", "loss", "rate"])
            if not TWIN:
                writer.writeheader()
            writer.writerows(self.rows)
        if TWIN:
            self.rows = []


model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 24))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
table = Table(pathlib.Path(tempfile.mkdtemp()) / "metrics.csv")
hours = TensorDataset(torch.randn(20000, 48), torch.randn(20000, 24))
end, step = time.time() + 15, 0
while time.time() < end:
    for before, after in DataLoader(hours, batch_size=64, shuffle=True):
        loss = nn.functional.mse_loss(model(before), after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        table.log(step=step, loss=loss.item(), rate=optimizer.param_groups[0]["lr"])
        if time.time() > end:
            break
print("loss", loss.item())
