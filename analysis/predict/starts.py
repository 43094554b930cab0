"""What beginning and ending a pass over a loader costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.measure.costs import MOST_FAULT_S, BatchProducers
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.predict.loader_replay import NOTHING, Task
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

#: Where no workers were recorded: a fork of a small training, what such a worker takes until its
#: first batch, and its end (benchmarks/whatif_truth.py).
_FORK = Task(7e-3, 1e-3)
_BIRTH = Task(20e-3, 0.0)
_ENDING_S = 7e-3
_RESET_S = 1e-3  # for workers that stay
# first batches of a worker, which take longer: it copies the pages of memory that it shares with
# its parent
WARMING = 3
_MANY_STARTS = 16  # of workers, which show themselves how many these are
_IN_PASS = (1 << 32) - 1  # of a batch's number: its place; the rest is the pass
_FEWEST_IN_PASSES = 3  # batches from which passes tell what page faults take
_CLEARLY = 2.0  # times as many page faults as in later passes, in each batch of the first one
_FEWER = 1.25  # times as many page faults in each third of a pass as in the next
_WARM = 1.1  # times what a worker's last batches take


@dataclass(frozen=True)
class Starts:
    """Beginnings of passes.

    Attributes:
        counted: passes begun among the steps that count.
        per_pass: batches in a pass.
        to_its_end: whether the last pass came to its end.
        each: what the main process takes to start each worker.
        births: what a worker takes from then to its first batch, and what its first batches take
            more than later ones.
        reset_s: for workers that stay.
        ending_s: from the last batch of a pass to its end, for each worker that has a CPU of its
            own meanwhile.
        main_s: what starting workers makes the main process take longer in the steps after it, per
            pass: it copies shared pages, too.
    """

    counted: int
    per_pass: int
    to_its_end: bool
    each: Task
    births: Task
    reset_s: float
    ending_s: float
    main_s: float = 0.0

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
        per_pass=_per_pass(asked),
        to_its_end=bool((ends["number"] >> 32 == last).any()),
        each=_each(with_start, workers) if len(with_start) else _FORK,
        births=_births(rank.makers.processes, with_start, workers, persistent)
        if len(with_start)
        else _BIRTH,
        reset_s=float(resets["wall"].mean()) / 1e9 if len(resets) else _RESET_S,
        ending_s=float(shut["wall"].mean()) / 1e9 / max(1.0, workers / _cpus(rank))
        if len(shut)
        else _ENDING_S,
    )


def warm_up(processes: Sequence[Process], persistent: bool) -> int:
    """Return how many batches of a worker are the first ones that take longer.

    Where many were started, it is as these show, else WARMING; none where there are few others.
    """
    workers = [process for process in processes if process.is_worker and len(process.batches)]
    since = [_since_start(process, persistent) for process in workers]
    number = np.bincount(np.concatenate([*since, np.zeros(0, np.int64)]))
    if not len(number) or number[0] < _MANY_STARTS:
        return WARMING if number[WARMING:].sum() > number[:WARMING].sum() else 0
    whole = number >= number[0] / 2
    cpu = (
        np.bincount(
            np.concatenate(since), np.concatenate([process.batches["cpu"] for process in workers])
        )[whole]
        / number[whole]
    )
    warm = cpu <= _WARM * cpu[-max(1, len(cpu) // 3) :].mean()
    return int(np.argmax(warm))


def staying_cpu_s(makers: BatchProducers) -> float:
    """Return the CPU seconds per batch that staying workers would take more for page faults.

    The workers of the first pass take that more than those of later ones, and would go on to: a
    worker that is forked later inherits the thresholds that the main process's malloc has learned
    by then, and returns less memory to the system (docs/rules/page_faults.md). 0 where the page
    faults do not show that for sure.
    """
    number, seen = _page_faults(makers)
    first, later = seen[number >> 32 == 0], seen[number >> 32 > 0]
    if (
        min(len(first), len(later)) < _FEWEST_IN_PASSES
        or first[:, 0].min() < _CLEARLY * later[:, 0].mean()
    ):
        return 0.0
    faults, system, _ = (first - later.mean(0)).mean(0)
    return float(max(0.0, min(system / 1e9, faults * MOST_FAULT_S)))


def settling_cpu_s(makers: BatchProducers) -> float:
    """Return the CPU seconds per batch for page faults that would become fewer.

    They grow fewer in the course of a pass, are as in its last third, and would go on to grow fewer
    in workers that stay: a page of memory that a worker shares with its parent is copied once, and
    one of a memory map is mapped once. What would be left of them is extrapolated (Aitken's
    delta-squared process: Proc. R. Soc. Edinburgh 46, 1926). 0 where they do not clearly grow
    fewer, or where all of the work does, as in batches that are sorted by size.
    """
    number, seen = _page_faults(makers)
    place = number & 0xFFFFFFFF
    third = np.minimum(place * 3 // (place.max(initial=0) + 1), 2)
    if np.bincount(third, minlength=3).min() < _FEWEST_IN_PASSES:
        return 0.0
    fault_ns = min(seen[:, 1].sum() / max(seen[:, 0].sum(), 1.0), MOST_FAULT_S * 1e9)
    faults, cpu = (
        [values[third == which].mean() for which in range(3)]
        for values in (seen[:, 0], seen[:, 2] - seen[:, 0] * fault_ns)
    )
    fewer, fewer_still = faults[0] - faults[1], faults[1] - faults[2]
    settles = (
        faults[0] >= _FEWER * faults[1]
        and faults[1] >= _FEWER * faults[2]
        and fewer >= _FEWER * fewer_still > 0
    )
    # the work falls as the page faults do, rather than not at all
    if not settles or cpu[2] < cpu[0] * math.sqrt(faults[2] / faults[0]):
        return 0.0
    return float(min(faults[2], fewer_still**2 / (fewer - fewer_still)) * fault_ns / 1e9)


def _page_faults(makers: BatchProducers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the page faults of each batch of a worker that was looked into.

    int64 [n], its number, and float64 [n, 3], minor faults, ns of CPU time in the kernel and of all
    CPU time.
    """
    numbers, counts = [np.zeros(0, np.int64)], [np.zeros((0, 3))]
    for process in makers.processes:
        kernel, batch = (
            records[np.isin(records["source"], list(makers.loaders))]
            for records in map(process.view, (Stage.KERNEL, Stage.BATCH))
        )
        stands_for = dict(
            zip(zip(batch["source"].tolist(), batch["number"].tolist()), batch["batches"].tolist())
        )
        times = np.array(
            [
                stands_for.get(key, 0)
                for key in zip(kernel["source"].tolist(), kernel["number"].tolist())
            ],
            np.float64,
        )
        own = process.is_worker & (times > 0) & (kernel["flags"] & Flag.FIRST == 0)
        batches = process.batches
        cpu = dict(
            zip(
                zip(batches["source"].tolist(), batches["number"].tolist()), batches["cpu"].tolist()
            )
        )
        whole = np.array(
            [cpu.get(key, 0) for key in zip(kernel["source"].tolist(), kernel["number"].tolist())],
            np.float64,
        )
        faults, system = (kernel[name][own] / times[own] for name in ("minor_faults", "system_cpu"))
        numbers.append(kernel["number"][own])
        counts.append(np.column_stack([faults, system, whole[own]]))
    return np.concatenate(numbers), np.concatenate(counts)


def warming(process: Process, persistent: bool, first: int) -> npt.NDArray[np.bool_]:
    """Mark the ``first`` batches of each newly started worker, bool [n].

    False in other processes.
    """
    return (_since_start(process, persistent) < first) & process.is_worker


def _since_start(process: Process, persistent: bool) -> npt.NDArray[np.int64]:
    """Return how many batches a worker had made before each, since it was started, int64 [n]."""
    batches = process.batches
    born = np.zeros(len(batches), np.int64) if persistent else batches["number"] >> 32
    order = np.lexsort((batches["start"], born))
    _, begin, number = np.unique(born[order], return_index=True, return_counts=True)
    since = np.empty(len(batches), np.int64)
    since[order] = np.arange(len(batches)) - np.repeat(begin, number)
    return since


def _per_pass(asked: Records) -> int:
    """Return the batches that a pass hands over: until it ended, or was broken off."""
    at = asked["number"] & _IN_PASS
    ended = asked["flags"] & Flag.END != 0
    if ended.any():
        return max(1, int(np.median(at[ended])))
    if not len(at):
        return 1
    _, passes = np.unique(asked["number"] >> 32, return_inverse=True)
    last = np.zeros(passes.max() + 1, np.int64)
    np.maximum.at(last, passes, at)
    return int(np.median(last)) + 1


def _each(epochs: Records, workers: int) -> Task:
    cpu = float(np.clip(epochs["cpu"], 0, epochs["wall"]).mean())
    off = max(0.0, float((epochs["wall"] - np.maximum(epochs["runqueue"], 0)).mean()) - cpu)
    return Task(cpu / workers / 1e9, off / workers / 1e9)


def _births(processes: Sequence[Process], epochs: Records, workers: int, persistent: bool) -> Task:
    """Return the CPU time from a worker's start to its first instruction.

    The second value is what its first batches take more than later ones.
    """
    cpu: list[float] = []
    warm = warm_up(processes, persistent)
    for process in processes:
        number, born = process.header.get("worker"), process.of(Stage.START)
        for epoch in epochs if isinstance(number, int) else ():
            assert isinstance(number, int)
            own = born[np.abs(born["start"] - epoch["start"]) <= epoch["wall"]]
            lag = (
                own["start"]
                + own["wall"]
                - epoch["start"]
                - (number + 1) * int(epoch["wall"]) // workers
            )
            cpu += np.clip(own["cpu"], 0, np.maximum(lag, 0)).tolist()
    if not cpu:
        return NOTHING
    more, off = np.mean(
        [_more(process, persistent, warm) for process in processes if process.is_worker], axis=0
    ).tolist()
    return Task((float(np.mean(cpu)) + more) / 1e9, off / 1e9)


def _more(process: Process, persistent: bool, warm: int) -> tuple[float, float]:
    """Return what a worker's first ``warm`` batches take more than average later ones, ns.

    It is CPU time, and blocked time.
    """
    batches, first = process.batches, warming(process, persistent, warm)
    if not first.any() or first.all():
        return 0.0, 0.0
    blocked = batches["wall"] - batches["cpu"] - np.maximum(batches["runqueue"], 0)
    cpu, off = (
        max(0.0, float(values[first].mean() - values[~first].mean()))
        for values in (batches["cpu"], blocked)
    )
    return cpu * warm, off * warm


def _cpus(rank: RankMetrics) -> float:
    cpus = rank.rank.manifest.machine.get("effective_cpus") or rank.rank.manifest.machine.get(
        "cpus"
    )
    return float(cpus) if isinstance(cpus, (int, float)) and cpus > 0 else 1.0
