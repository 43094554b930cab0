"""What the programs of this folder share: arguments of a loader, a loop, and timers of their own."""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader

#: Where a program writes what its own timers say; nowhere where that is not set.
TIMES = "FAULT_SUITE_TIMES"


def options(doc: str | None) -> argparse.ArgumentParser:
    """The arguments that every program has."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100, help="per epoch")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--step-ms", type=float, default=0.0, help="what an accelerator computes for, per step"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver"), default="fork")
    parser.add_argument("--restart", action="store_true", help="new workers for each epoch")
    parser.add_argument(
        "--skip", type=int, default=0, help="batches passed over at the beginning of each epoch"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="batches per update")
    parser.add_argument(
        "--set",
        type=settings,
        default={},
        metavar="NAME=VALUE,...",
        help="any argument of the DataLoader",
    )
    return parser


def settings(text: str) -> dict[str, Any]:
    """``num_workers=2,in_order=False`` as a mapping."""
    pairs = (pair.split("=") for pair in text.split(",") if pair)
    return (
        {name: {"True": True, "False": False}.get(value, value) for name, value in pairs}
        if "=" in text
        else {}
    )


def loader(data: Any, given: argparse.Namespace, **arguments: Any) -> "DataLoader[Any]":
    """The DataLoader that the arguments ask for."""
    chosen = {
        name: value if isinstance(value, bool) else int(value) for name, value in given.set.items()
    }
    workers = chosen.pop("num_workers", given.workers)
    how = {
        "batch_size": given.batch,
        "persistent_workers": given.epochs > 1 and not given.restart,
        **arguments,
        **chosen,
    }
    if workers:
        how |= {"multiprocessing_context": given.start}
    else:
        how |= {"persistent_workers": False, "prefetch_factor": None}
    return DataLoader(data, num_workers=workers, **how)


class Timers:
    """Seconds of each step and of its wait for a batch, without any profiler."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.steps: list[float] = []
        self.ended: float | None = None  # when the last step of the pass before had

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of one epoch. Stopping the workers of the epoch before counts as waiting for
        its first batch; after the last epoch, it counts for none."""
        asked = time.perf_counter() if self.ended is None else self.ended
        for batch in batches:
            got = time.perf_counter()
            yield batch
            ended = time.perf_counter()
            self.waits.append(got - asked)
            self.steps.append(ended - asked)
            asked = ended
        self.ended = asked

    def write(self, samples_per_step: int, ahead: int = 0, accumulate: int = 1) -> None:
        """All but the first step, which starts the loader for the first time, and what workers made
        meanwhile; of rank 0 alone. Nothing where that is most of the run.

        Args:
            ahead: batches that workers may have made before the first one is asked for.
            accumulate: steps that share an update, of which either all count or none.
        """
        if (
            TIMES not in os.environ
            or os.environ.get("RANK", "0") != "0"
            or ahead > len(self.steps) // 2
        ):
            return
        first = accumulate * math.ceil((1 + ahead) / accumulate)
        steps = self.steps[first:]
        took, waited = sum(steps), sum(self.waits[first:])
        rate = samples_per_step * len(steps) / took
        with open(os.environ[TIMES], "w") as file:
            json.dump(
                {"samples_per_s": rate, "step_s": took / len(steps), "input_share": waited / took},
                file,
            )


def train(
    model: torch.nn.Module,
    batches: "DataLoader[Any]",
    given: argparse.Namespace,
    inputs: Callable[[Any], torch.Tensor],
    begin: Callable[[int], None] = lambda epoch: None,
    ranks: int = 1,
) -> None:
    """A training loop as in any tutorial; an accelerator is a sleep at the end of the forward.

    Args:
        inputs: what the model is given of a batch.
        begin: called before each epoch.
    """
    optimizer, timers = torch.optim.SGD(model.parameters(), 1e-6), Timers()
    if given.step_ms:
        model.register_forward_hook(lambda *_: time.sleep(given.step_ms / 1e3))
    for epoch in range(given.epochs):
        begin(epoch)
        for number, batch in enumerate(timers.over(batches), 1):
            if number <= given.skip:
                continue
            updates = number % given.accumulate == 0
            with nullcontext() if updates or ranks == 1 else model.no_sync():
                model(inputs(batch)).square().mean().backward()
            if updates:
                optimizer.step()
                optimizer.zero_grad()
    ahead = (batches.prefetch_factor or 0) * batches.num_workers if given.epochs == 1 else 0
    timers.write(given.batch * ranks, ahead, given.accumulate)
