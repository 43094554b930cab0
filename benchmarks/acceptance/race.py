"""Runs all trainings of a table on all cores: one process per core, one thread per process."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from contextlib import contextmanager

import numpy as np
import torch

from acceptance.arms import Arm
from acceptance.data import Data
from acceptance.train import Run, train
from feedline.profiler.errors import WorkersLost
from feedline.profiler.pool import pool

#: Called with what is being done, how many trainings are done, and of how many.
Tell = Callable[[str, int, int], None]

_data: Data | None = None  # of a worker process, so that it is sent once


def race(
    arms: Sequence[Arm], seeds: Sequence[int], data: Data, jobs: int, tell: Tell, found: list[Run]
) -> None:
    """Train every arm with every seed; runs are appended to ``found`` as they end, so that an
    interrupt loses none that is done.

    A seed comes after another, so that an interrupt leaves whole tables of fewer seeds; within a
    seed the longest training comes first, so that no core is left with it at the end.

    Args:
        jobs: processes; 1: this one.

    Raises:
        KeyboardInterrupt: the user's; processes that train are ended at once.
        WorkersLost: a process was killed.
    """
    todo = [
        (arm, seed)
        for seed in seeds
        for arm in sorted(arms, key=lambda arm: -arm.epochs / arm.batch)
    ]
    tell("training", 0, len(todo))
    runs = _here(todo, data) if jobs == 1 else _in_processes(todo, data, min(jobs, len(todo)))
    for run in runs:
        found.append(run)
        tell("training", len(found), len(todo))


def _here(todo: Sequence[tuple[Arm, int]], data: Data) -> Iterator[Run]:
    with one_thread():
        for arm, seed in todo:
            yield train(arm, seed, data)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: the model is too small for more, and sums would depend on their
    number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_processes(todo: Sequence[tuple[Arm, int]], data: Data, jobs: int) -> Iterator[Run]:
    try:
        with pool(jobs, _begin, (data.arrays(),)) as workers:
            for future in as_completed([workers.submit(_train, arm, seed) for arm, seed in todo]):
                yield future.result()
    except BrokenExecutor as error:
        raise WorkersLost(
            f"a training process was killed ({error}): if memory is short, try --processes 1"
        ) from error


def _begin(arrays: dict[str, np.ndarray]) -> None:
    """What a process does first."""
    global _data
    torch.set_num_threads(1)
    _data = Data.of(arrays)


def _train(arm: Arm, seed: int) -> Run:
    assert _data is not None
    return train(arm, seed, _data)
