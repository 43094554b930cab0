"""What a home needs is learned from all of its readings in a table.

https://github.com/nestauk/asf_heat_pump_suitability/issues/33
"""

import sys
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
HOMES, HOURS = 2000, 48


class Homes(Dataset):
    def __init__(self):
        self.table = pd.DataFrame(
            np.random.rand(HOMES * HOURS, 3).astype(np.float32), columns=["heat", "power", "wind"]
        )
        self.table["home"] = np.random.permutation(np.repeat(np.arange(HOMES), HOURS))
        if TWIN:
            self.homes = {home: rows.to_numpy() for home, rows in self.table.groupby("home")}

    def __len__(self):
        return HOMES

    def __getitem__(self, index):
        if TWIN:
            rows = self.homes[index]
        else:
            rows = self.table[self.table["home"] == index].to_numpy()
        return torch.from_numpy(rows[:, :3].astype(np.float32)).flatten(), rows[:, 0].mean()


model = nn.Sequential(nn.Linear(HOURS * 3, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end = time.time() + 20
loader = DataLoader(Homes(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
while time.time() < end:
    for readings, need in loader:
        loss = nn.functional.mse_loss(model(readings)[:, 0], need.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
