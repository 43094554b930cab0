"""A small training whose samples and model are set from the command line, for diff_truth.py to record with and without load beside it.

    loaded_training.py --samples loops --workers 2 --width 64 --steps 60

loops    a map is drawn in a Python loop over its cells
arrays   the same map is drawn by one expression
sleeps   samples are asked for somewhere and answered 4 ms later
"""

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, SPREAD, BATCH, CLASSES = 32, 8.0, 16, 10
WAIT_S = 0.004
SAMPLES = ("loops", "arrays", "sleeps")


class Maps(Dataset[Any]):
    """One map with a bump at a random place per sample."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.kind == "sleeps":
            time.sleep(WAIT_S)
        column, row = np.random.default_rng(index).integers(0, SIDE, 2)
        draw = self.in_loops if self.kind == "loops" else self.as_arrays
        return torch.from_numpy(draw(int(column), int(row))), index % CLASSES

    def in_loops(self, column: int, row: int) -> Any:
        drawn = np.zeros((SIDE, SIDE), np.float32)
        for y in range(SIDE):
            for x in range(SIDE):
                drawn[y, x] = np.exp(-((x - column) ** 2 + (y - row) ** 2) / SPREAD)
        return drawn

    def as_arrays(self, column: int, row: int) -> Any:
        y, x = np.mgrid[:SIDE, :SIDE]
        return np.exp(-((x - column) ** 2 + (y - row) ** 2) / SPREAD).astype(np.float32)


def model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", choices=SAMPLES, default="arrays")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--width", type=int, default=8, help="channels of the model")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Maps(args.samples, args.steps * BATCH), batch_size=BATCH, num_workers=args.workers
    )
    net, loss_of = model(args.width), nn.CrossEntropyLoss()
    net(torch.zeros(1, 1, SIDE, SIDE))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = loss_of(net(images[:, None]), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
