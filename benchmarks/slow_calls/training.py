"""A small training for the programs of this folder: the same with and without the slow call.

    python PROGRAM.py [--twin] [--seconds 8] [--workers 2]

The line that a report must name is marked with ``SLOW``.
"""

import argparse
import atexit
import shutil
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

_parser = argparse.ArgumentParser()
_parser.add_argument("--twin", action="store_true", help="without the slow call")
_parser.add_argument("--seconds", type=float, default=8.0)
_parser.add_argument("--workers", type=int, default=2)
given = _parser.parse_args()
TWIN = given.twin
WIDTH = 64


def folder() -> Path:
    """A folder for the program's data, which goes with it."""
    place = Path(tempfile.mkdtemp(prefix="slow-call-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def loader(dataset, batch=32, **more):
    """Workers stay between passes, which are short."""
    return DataLoader(
        dataset, batch, shuffle=True, num_workers=given.workers, persistent_workers=True, **more
    )


def train(batches, each_step=lambda step, loss, model: None):
    """Train on batches of (float [n, WIDTH], label [n]) for the time that was asked for."""
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of, until, step = nn.CrossEntropyLoss(), time.monotonic() + given.seconds, 0
    while time.monotonic() < until:
        for rows, labels in batches:
            optimizer.zero_grad()
            loss = loss_of(model(rows.float()), labels)
            loss.backward()
            optimizer.step()
            each_step(step, loss, model)
            step += 1
            if time.monotonic() > until:
                break
