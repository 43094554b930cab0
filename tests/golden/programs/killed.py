"""Killed in its 40th step, without a chance to tidy up: its segments are as they were."""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    """10 ms a sample."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.full((64,), index / 400)


torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, x in enumerate(DataLoader(Slow(), 4, num_workers=1)):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    if step == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
