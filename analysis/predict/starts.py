"""What it costs to begin a pass over a loader, and to end it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.gather import RankMetrics
from feedline.analysis.predict.loader_replay import NOTHING, Task
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.columns import Records
from feedline.profiler.store.segment_reader import Process

#: Where no workers were recorded: a fork of a small training, what such a worker takes until its first batch, and its end
#: (benchmarks/whatif_truth.py).
FORK = Task(7e-3, 1e-3)
BIRTH = Task(20e-3, 0.0)
ENDING_S = 7e-3
RESET_S = 1e-3  # for workers that stay
WARMING = 3  # first batches of a worker, which take longer: it copies the pages of memory that it shares with its parent


@dataclass(frozen=True)
class Starts:
    """Beginnings of passes.

    Attributes:
        counted: passes begun among the steps that count.
        per_pass: batches in a pass.
        to_its_end: whether the last pass came to its end.
        each: what the main process takes to start each worker.
        births: what a worker takes from then to its first batch, and its first batches more than others.
        reset_s: for workers that stay.
        ending_s: from the last batch of a pass to its end, for each worker that has a CPU of its own meanwhile.
    """

    counted: int
    per_pass: int
    to_its_end: bool
    each: Task
    births: Task
    reset_s: float
    ending_s: float

    @property
    def worker_cpu_s(self) -> float:
        """CPU seconds that starting a worker takes, in all processes."""
        return self.each.cpu_s + self.births.cpu_s


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
    with_start = epochs[: 1 if persistent else None] if workers else epochs[:0]
    resets = epochs[1:] if persistent else epochs[:0]
    shut = ends[:0] if persistent or not workers else ends
    return Starts(
        counted=int((epochs["start"] >= first).sum()),
        per_pass=_per_pass(rank, ends),
        to_its_end=bool((ends["number"] >> 32 == last).any()),
        each=_each(with_start, workers) if len(with_start) else FORK,
        births=_births(rank.makers.processes, with_start, workers, persistent) if len(with_start) else BIRTH,
        reset_s=float(resets["wall"].mean()) / 1e9 if len(resets) else RESET_S,
        ending_s=float(shut["wall"].mean()) / 1e9 / max(1.0, workers / _cpus(rank)) if len(shut) else ENDING_S,
    )


def warming(process: Process, persistent: bool) -> npt.NDArray[np.bool_]:
    """bool [n]: which of a process's batches are the first ones of a worker; none where there are few others."""
    made = process.batches
    born = np.zeros(len(made), np.int64) if persistent else made["number"] >> 32
    order = np.argsort(made["start"], kind="stable")
    since = np.zeros(len(made), np.int64)
    for birth in np.unique(born).tolist():
        of_birth = order[born[order] == birth]
        since[of_birth] = np.arange(len(of_birth))
    first = since < WARMING
    return first if process.is_worker and (~first).sum() > first.sum() else np.zeros(len(made), np.bool_)


def _per_pass(rank: RankMetrics, ends: Records) -> int:
    """Batches in a pass: as it ended, or as far as it came."""
    if len(ends):
        return max(1, int(np.median(ends["number"] & 0xFFFFFFFF)))
    made = np.concatenate([process.batches["number"] & 0xFFFFFFFF for process in rank.makers.processes])
    return int(made.max()) + 1 if len(made) else 1


def _each(epochs: Records, workers: int) -> Task:
    cpu = float(np.clip(epochs["cpu"], 0, epochs["wall"]).mean())
    off = max(0.0, float((epochs["wall"] - np.maximum(epochs["runqueue"], 0)).mean()) - cpu)
    return Task(cpu / workers / 1e9, off / workers / 1e9)


def _births(processes: list[Process], epochs: Records, workers: int, persistent: bool) -> Task:
    """CPU time from a worker's start to its first instruction, and what its first batches take more than the others."""
    cpu: list[float] = []
    for process in processes:
        number, born = process.header.get("worker"), process.of(Stage.START)
        for epoch in epochs if isinstance(number, int) else ():
            assert isinstance(number, int)
            own = born[np.abs(born["start"] - epoch["start"]) <= epoch["wall"]]
            lag = own["start"] + own["wall"] - epoch["start"] - (number + 1) * int(epoch["wall"]) // workers
            cpu += np.clip(own["cpu"], 0, np.maximum(lag, 0)).tolist()
    if not cpu:
        return NOTHING
    more, off = np.mean([_more(process, persistent) for process in processes if process.is_worker], axis=0).tolist()
    return Task((float(np.mean(cpu)) + more) / 1e9, off / 1e9)


def _more(process: Process, persistent: bool) -> tuple[float, float]:
    """CPU time and other time, ns, that the first batches of a worker take more than as many of the others."""
    made, first = process.batches, warming(process, persistent)
    if not first.any():
        return 0.0, 0.0
    blocked = made["wall"] - made["cpu"] - np.maximum(made["runqueue"], 0)
    cpu, off = (max(0.0, float(values[first].mean() - values[~first].mean())) for values in (made["cpu"], blocked))
    return cpu * WARMING, off * WARMING


def _cpus(rank: RankMetrics) -> float:
    cpus = rank.rank.manifest.machine.get("effective_cpus") or rank.rank.manifest.machine.get("cpus")
    return float(cpus) if isinstance(cpus, (int, float)) and cpus > 0 else 1.0
