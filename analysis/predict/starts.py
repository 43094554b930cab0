"""What it costs to begin a pass over a loader, and to end it."""

from dataclasses import dataclass

import numpy as np

from feedline.analysis.gather import RankMetrics
from feedline.analysis.predict.loader_replay import NOTHING, Task
from feedline.profiler.events import Flag, Stage

#: Where no workers were recorded: a fork of a small training, and what such a worker takes until its first batch
#: (benchmarks/whatif_truth.py).
FORK = Task(5e-3, 0.0)
BIRTH = Task(5e-3, 0.0)
RESET_S = 1e-3  # for workers that stay


@dataclass(frozen=True)
class Starts:
    """Beginnings of passes.

    Attributes:
        counted: passes begun among the steps that count.
        per_pass: batches in a pass.
        to_its_end: whether the last pass came to its end.
        each: what the main process takes to start each worker.
        births: what a worker takes from then to its first batch.
        reset_s: for workers that stay.
        ending_s: from the last batch of a pass to its end.
    """

    counted: int
    per_pass: int
    to_its_end: bool
    each: Task
    births: Task
    reset_s: float
    ending_s: float


def starts(rank: RankMetrics, workers: int, persistent: bool) -> Starts:
    """Read them.

    Args:
        workers: of the training loader.
        persistent: whether they stay between passes.
    """
    assert rank.steps is not None
    own = rank.main.records[np.isin(rank.main.records["source"], list(rank.makers.loaders))]
    epochs, asked = own[own["stage"] == Stage.EPOCH], own[own["stage"] == Stage.NEXT]
    ends = asked[asked["flags"] & Flag.END != 0]
    first = rank.steps.start[min(rank.first, len(rank.steps.start) - 1)]
    last = int(epochs["number"].max()) if len(epochs) else 0
    lengths = ends["number"] & 0xFFFFFFFF
    with_start = epochs[: 1 if persistent else None] if workers else epochs[:0]
    later = epochs[1:] if persistent else epochs[:0]
    made = np.concatenate([process.batches["number"] & 0xFFFFFFFF for process in rank.makers.processes])
    return Starts(
        counted=int((epochs["start"] >= first).sum()),
        per_pass=max(1, int(np.median(lengths)) if len(lengths) else int(made.max()) + 1 if len(made) else 1),
        to_its_end=bool((ends["number"] >> 32 == last).any()),
        each=_mean(with_start, workers) if len(with_start) else FORK,
        births=_births(rank, with_start, workers) if len(with_start) else BIRTH,
        reset_s=float(later["wall"].mean()) / 1e9 if len(later) else RESET_S,
        ending_s=float(ends["wall"].mean()) / 1e9 if len(ends) else 0.0,
    )


def _mean(records: "np.ndarray[tuple[int], np.dtype[np.void]]", parts: int) -> Task:
    cpu = float(np.minimum(np.maximum(records["cpu"], 0), records["wall"]).mean())
    off = max(0.0, float((records["wall"] - np.maximum(records["runqueue"], 0)).mean()) - cpu)
    return Task(cpu / parts / 1e9, off / parts / 1e9)


def _births(rank: RankMetrics, epochs: "np.ndarray[tuple[int], np.dtype[np.void]]", workers: int) -> Task:
    """From when a worker was started to its first instruction, of which its CPU time is known."""
    begun = {int(epoch["number"]): (int(epoch["start"]), int(epoch["wall"]) / workers) for epoch in epochs}
    cpu, off = [], []
    for process in rank.makers.processes:
        born = process.of(Stage.START)
        number = process.header.get("worker")
        for record in born:
            at = [(start, each) for start, each in begun.values() if abs(start - int(record["start"])) < 1e9]
            if process.is_worker and at and isinstance(number, int):
                lag = max(0.0, int(record["start"]) + int(record["wall"]) - at[0][0] - (number + 1) * at[0][1])
                cpu.append(min(lag, max(0, int(record["cpu"]))))
                off.append(0.0)
    return Task(float(np.mean(cpu)) / 1e9, float(np.mean(off)) / 1e9) if cpu else NOTHING
