"""Arms of a robot learn from what was shown to them: a state, and the actions that followed."""

import sys
import time

import numpy as np
import torch
from datasets import Dataset as Table
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
AHEAD = 8


class Episodes(Dataset):
    def __init__(self, frames=6000):
        rows = {name: np.random.rand(frames, 14).astype(np.float32) for name in ("state", "action")}
        self.table = Table.from_dict(rows).with_format("torch")

    def __len__(self):
        return len(self.table) - AHEAD

    def __getitem__(self, index):
        following = list(range(index, index + AHEAD))
        if TWIN:
            actions = self.table[following]["action"]
        else:
            actions = self.table["action"][following]
        return self.table[index]["state"], actions


model = nn.Sequential(
    nn.Linear(14, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, AHEAD * 14)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Episodes(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
end = time.time() + 14
while time.time() < end:
    for states, actions in loader:
        loss = nn.functional.l1_loss(model(states).view_as(actions), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
