"""A training that knows nothing of the fixes applied to it, in this process."""

import contextlib

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from feedline.convergence.apply import FixInjector, parse_fixes
from feedline.profiler.taps.patch import Patches


@contextlib.contextmanager
def fixed(text):
    told, patches = [], Patches()
    outside = FixInjector(lambda *row: told.append(row))
    outside.told = told
    undo = outside.attach(parse_fixes(text), patches)
    try:
        yield outside
    finally:
        patches.undo()
        undo()


class Training:
    """Sixteen samples in batches of four: a plain loop that writes down its rates."""

    def __init__(self, norm=True, lr=0.8):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, 4),
            *([torch.nn.BatchNorm1d(4)] if norm else []),
            torch.nn.Linear(4, 3),
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)
        self.rates = []
        self.optimizer.register_step_pre_hook(
            lambda optimizer, *_: self.rates.append(round(optimizer.param_groups[0]["lr"], 6))
        )

    def run(self, epochs=2):
        data = TensorDataset(
            torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3
        )
        for _ in range(epochs):
            for images, labels in DataLoader(data, batch_size=4):
                F.cross_entropy(self.net(images), labels).backward()
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
        return self
