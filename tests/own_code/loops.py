"""Loops without a loader.

Each makes its batches in another way; ``spent`` has what a timer of the loop's own says of each
call, ns.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROWS, LENGTH = 64, 32
TEXT = np.random.RandomState(0).randint(0, 60, 20_000).astype(np.uint16)
Batch = tuple[torch.Tensor, torch.Tensor]


class Model(torch.nn.Module):
    """Returns its loss too where it is given what to predict."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(60, width), torch.nn.Linear(width, 60)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        out = self.out(self.embed(x))
        return (
            (out, torch.nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()))
            if y is not None
            else out
        )


class Timed:
    """A function with a timer around its body."""

    def __init__(self) -> None:
        self.spent: list[int] = []

    def get_batch(self) -> Batch:
        """Row by row, as nanoGPT does."""
        begin = time.perf_counter_ns()
        at = torch.randint(len(TEXT) - LENGTH - 1, (ROWS,))
        x = torch.stack([torch.from_numpy(TEXT[i : i + LENGTH].astype(np.int64)) for i in at])
        y = torch.stack(
            [torch.from_numpy(TEXT[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in at]
        )
        self.spent.append(time.perf_counter_ns() - begin)
        return x, y

    def batches(self) -> Iterator[Batch]:
        while True:
            begin = time.perf_counter_ns()
            at = torch.randint(len(TEXT) - LENGTH - 1, (ROWS,))
            x = torch.stack(
                [torch.from_numpy(TEXT[i : i + LENGTH + 1].astype(np.int64)) for i in at]
            )
            self.spent.append(time.perf_counter_ns() - begin)
            yield x[:, :-1], x[:, 1:]

    def from_file(self, path: Path) -> Batch:
        begin = time.perf_counter_ns()
        file = np.memmap(path, np.uint16, "r")
        at = torch.randint(len(file) - LENGTH - 1, (ROWS,)).tolist()
        x = torch.stack([torch.from_numpy(file[i : i + LENGTH + 1].astype(np.int64)) for i in at])
        self.spent.append(time.perf_counter_ns() - begin)
        return x[:, :-1], x[:, 1:]


def train(
    step: Callable[[Model], torch.Tensor], steps: int = 24, accumulate: int = 1
) -> list[float]:
    """Update a model as many times; returns the losses.

    ``step`` gets the model, and returns a loss.
    """
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        for _ in range(accumulate):
            loss = step(model)
            losses.append(loss.item())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def at_the_end(get: Callable[[], Batch]) -> Callable[[Model], torch.Tensor]:
    """The next batch is made between a forward and its backward, as in nanoGPT."""
    held = [get()]

    def step(model: Model) -> torch.Tensor:
        _, loss = model(*held[0])
        held[0] = get()
        return loss

    return step


def at_the_beginning(get: Callable[[], Batch]) -> Callable[[Model], torch.Tensor]:
    """A batch is made before the forward; the loss is a function's."""

    def step(model: Model) -> torch.Tensor:
        x, y = get()
        return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    return step


def finding(report, rule_id="made_in_step"):
    return next((one for one in report.findings if one.rule_id == rule_id), None)
