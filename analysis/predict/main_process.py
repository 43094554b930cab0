"""The main process's own work in each step, free of waiting for batches and for a CPU.

Beside it: what each rank's mean step takes of the CPUs that it shares with other ranks.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure import rank_metrics
from feedline.analysis.measure.batch_making import process_cpu_s
from feedline.analysis.measure.costs import accounted_cpu_s
from feedline.analysis.measure.rank_gauges import cpu_mask, machine_of, mean_of, read_rank_gauges
from feedline.analysis.measure.rank_metrics import RankMetrics, step_summary
from feedline.analysis.measure.stages import INPUT_STAGES, MAKING_STAGES
from feedline.analysis.predict.loader_replay import Task
from feedline.analysis.ranks.shared_cpus import RankCpu
from feedline.profiler.events import Flag, Stage

# whose CPU time is measured, and which lie outside of each other
_TIMED = (Stage.FORWARD, Stage.BACKWARD)
# of all CPU time: with less, threads beside the main one are not told from the work around batches
# and from feedline's
_MIN_HELPERS = 0.2
# of what no record accounts for: with less CPU time than this, the main thread waits there for a
# device
_ASLEEP = 0.5
_CROWDED = 0.05  # share of the time that it waits for a CPU, above which it does so everywhere
# a thread that lost its CPU waits about that long: twice the scheduler's base slice of 3 ms
_SLICE_S = 6e-3
_NOTHING_ELSE = 1e-6  # s: a step has an end
# stages whose CPU time is measured, or which are not the step's own
_AS_RECORDED = (*INPUT_STAGES, "forward", "backward")


@dataclass(frozen=True)
class Main:
    """The main process, step by step.

    Attributes:
        own_s: float64 [n], seconds on a CPU of its own, without waiting for batches and receiving
            them.
        cpu_share: of that, in which it computes (0 to 1).
        threads: that compute meanwhile, on average.
        batches: per step.
        shares: stage -> its share of ``own_s``.
        receiving: what it takes to receive a batch from a worker.
        starting_s: per batch, on average over all steps, what those take more in which workers were
            started.
    """

    own_s: FloatArray
    cpu_share: float
    threads: float
    batches: float
    shares: Mapping[str, float]
    receiving: Task
    starting_s: float

    def tasks(self) -> list[Task]:
        """Return what the main process does for a batch."""
        each = np.repeat(self.own_s / self.batches, max(1, round(self.batches)))
        cpu, off = self.cpu_share * self.threads, 1 - self.cpu_share
        return [Task(own * cpu, own * off, self.threads) for own in each.tolist()]


def main_process(
    rank: RankMetrics, facts: RuleInputs, workers: int, restarting_s: float, pinning_s: float
) -> Main:
    """Read it from the steps that count.

    Args:
        workers: of the training loader. Without any, making batches is not its own work, either.
        restarting_s: CPU seconds per batch for starting workers again in each pass.
        pinning_s: CPU seconds per batch of the thread that receives batches and pins them.
    """
    steps = rank.steps
    assert steps is not None
    counts = np.arange(len(steps.wall)) >= rank.first
    if rank.estimate is not None:
        counts &= rank.estimate.alike
    not_own = (
        {"wait", "epoch_start", "sampler", "transport"}
        if workers
        else {"epoch_start", *MAKING_STAGES}
    )
    stages = {name: values[counts] for name, values in rank.stages.items() if name not in not_own}
    whole = np.sum(list(stages.values()), axis=0)
    cpu, queued = (_of_steps(rank, counts, column) for column in ("cpu", "runqueue"))
    timed = [stages[name] for name in ("forward", "backward") if name in stages]
    measured = np.minimum(sum(timed, np.zeros(len(whole))), whole)
    # share of the time in which it wants a CPU
    waiting = queued.sum() / max(cpu.sum() + queued.sum(), 1)
    rest = _computed(whole - measured, waiting)
    own = np.maximum(measured - np.minimum(queued, measured) + rest, _NOTHING_ELSE * 1e9)
    mean_own = float(own.mean())
    batches = 1.0
    if steps.batches[counts].any():
        batches = max(float(steps.batches[counts].mean()), _NOTHING_ELSE)
    computes_s, threads = _computing(
        facts.step.cpu_s,
        _making_cpu_s(facts) + _asking_cpu_s(rank, workers) + (restarting_s + pinning_s) * batches,
        not restarting_s,  # what the ends of workers take is not told from helper threads
        float(np.minimum(cpu, own).mean()) / 1e9,
        float(rest.mean()) / 1e9,
    )
    means = {name: value for name, value in facts.step.stages.items() if name not in not_own}
    mean_s = sum(means.values())
    # where steps were only counted, of all
    target = mean_s * (float(own.sum()) / max(float(whole.sum()), 1.0))
    usual = min(target, mean_own / 1e9) if restarting_s and rank.estimate is not None else target
    return Main(
        own_s=own / mean_own * max(usual, _NOTHING_ELSE),
        cpu_share=min(1.0, computes_s * 1e9 / mean_own),
        threads=threads,
        batches=batches,
        shares={name: value / max(mean_s, _NOTHING_ELSE) for name, value in means.items()},
        receiving=_receiving(rank, counts) if workers else Task(0.0, 0.0),
        starting_s=(target - usual) / batches,
    )


def _computed(rest: FloatArray, waiting: float) -> FloatArray:
    """Return what a step takes that has a CPU of its own, float64 [n], ns.

    It is taken from the time that no record of CPU time accounts for. A main thread that asks a
    worker for a batch wakes it, and often loses its CPU to it there.

    Args:
        waiting: share of the time in which it wants a CPU and has none, where that is measured (0
            to 1).
    """
    queued = rest * waiting
    if waiting > _CROWDED:
        queued = np.maximum(queued, np.minimum(rest - np.quantile(rest, 0.25), _SLICE_S * 1e9))
    return np.asarray(rest - queued)


def _of_steps(
    rank: RankMetrics, counts: "np.ndarray[tuple[int], np.dtype[np.bool_]]", column: str
) -> IntArray:
    """Return forward and backward in each step by one clock, int64 [n], ns."""
    assert rank.steps is not None
    steps, records = rank.steps, rank.main.of(*_TIMED)
    records = records[(records[column] > 0) & (records["thread"] == 0)]
    at = steps.boundaries.step_of(records["start"])
    inside = at >= 0
    return np.bincount(
        at[inside], np.minimum(records[column], records["wall"])[inside], len(steps.start)
    )[counts]


def _computing(
    cpu_s: float | None, beside_s: float, helped: bool, known_s: float, rest_s: float
) -> tuple[float, float]:
    """Return the CPU seconds per step of the main thread, and how many threads compute with it.

    Args:
        cpu_s: of all processes, per step; None: not known.
        beside_s: of it, for batches.
        helped: whether helper threads can be told from what else uses CPUs.
        known_s: what the main thread computes in forward and backward.
        rest_s: what no record of CPU time accounts for.
    """
    if cpu_s is None:
        return known_s + rest_s, 1.0
    used_s = cpu_s - beside_s
    if used_s - known_s < _ASLEEP * rest_s:
        return known_s + max(used_s - known_s, 0.0), 1.0
    computes_s = known_s + rest_s
    helps = helped and used_s - computes_s > _MIN_HELPERS * cpu_s
    return computes_s, used_s / max(computes_s, _NOTHING_ELSE) if helps else 1.0


def _making_cpu_s(facts: RuleInputs) -> float:
    """Return the CPU seconds per step of those who make its batches and send them.

    Threads that pickle may be missing from those of the process.
    """
    return max(facts.process_cpu_s or 0.0, accounted_cpu_s(facts.costs)) * (
        facts.throughput.batch_size or 0.0
    )


def _asking_cpu_s(rank: RankMetrics, workers: int) -> float:
    """Return the CPU seconds per step of the main thread inside the loader, which has workers."""
    assert rank.steps is not None
    asked = rank.steps.asked
    return float(np.maximum(asked["cpu"], 0).sum()) / len(rank.steps.wall) / 1e9 if workers else 0.0


def _receiving(rank: RankMetrics, counts: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Task:
    """Return the CPU time per batch inside ``__next__``, and how long it waits there.

    It waits for the worker to pass on the tensors.
    """
    assert rank.steps is not None
    asked = rank.steps.asked
    asked = asked[
        (asked["flags"] & (Flag.FIRST | Flag.END | Flag.FAILED) == 0) & (asked["cpu"] >= 0)
    ]
    if not len(asked):
        return Task(0.0, 0.0)
    batches = max(int(rank.steps.batches[counts].sum()), 1)
    return Task(
        float(np.minimum(asked["cpu"], asked["wall"]).mean()) / 1e9,
        float(rank.steps.handing[counts].sum()) / batches / 1e9,
    )


def rank_cpus(gathered: Mapping[int, RankMetrics]) -> dict[int, RankCpu]:
    """Return the use of CPUs by rank, where several were recorded.

    Ranks of which too little is known are left out.
    """
    if len(gathered) < 2:
        return {}
    machines = {number: machine_of(rank) for number, rank in gathered.items()}
    ranks, masks = Counter(machines.values()), {*map(cpu_mask, gathered.values())}
    alike = len(masks) == 1 and masks != {frozenset()}
    use = {
        number: _rank_cpu(rank, machines[number], 1 if alike else ranks[machines[number]])
        for number, rank in gathered.items()
    }
    return {number: rank for number, rank in use.items() if rank is not None}


def _rank_cpu(rank: RankMetrics, machine: tuple[object, str], ranks: int) -> RankCpu | None:
    """Read it; None without steps, or where no gauge tells what its processes compute.

    Args:
        ranks: of the same machine, this one included, where each may be kept on CPUs of its own; 1:
            all are kept on the same ones.
    """
    step, cpus = step_summary(rank), _cpus(rank, ranks)
    used = mean_of(rank, rank, read_rank_gauges(rank.rank, []), "cpu/processes")
    if step is None or rank.steps is None or used is None or cpus is None:
        return None
    workers = any(process.is_worker for process in rank.makers.processes)
    samples = float(rank.steps.samples[rank.first :].mean())
    costs = rank.sample_costs
    making_s = max(process_cpu_s(rank) or 0.0, accounted_cpu_s(costs)) * samples if workers else 0.0
    whole = costs.get("total")
    batch_s = ((whole.cpu_s or 0.0) + (whole.blocked_s or 0.0)) * samples if whole else 0.0
    known_s = _timed_s(rank) + _asking_cpu_s(rank, int(workers))
    queued_s = (
        rank_metrics.runqueue_s(rank.main, rank.steps, rank.first, Stage.NEXT, *_TIMED) or 0.0
    )
    rest_s = sum(s for name, s in step.stages.items() if name not in _AS_RECORDED)
    computes = used * step.mean_s - making_s - known_s >= _ASLEEP * rest_s
    busy_s = known_s + queued_s + (rest_s if computes else 0.0)
    return RankCpu(machine, cpus, used * step.mean_s, making_s, batch_s, busy_s, _workers(rank))


def _workers(rank: RankMetrics) -> int:
    """Return how many workers work at one time, of the loader that feeds the steps.

    0: there are none, or several loaders, which may take turns.
    """
    numbers = [
        about.get("num_workers")
        for number, about in enumerate(rank.rank.manifest.loaders)
        if number in rank.makers.loaders
    ]
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], int) else 0


def _timed_s(rank: RankMetrics) -> float:
    """Return the CPU seconds of forward and backward per step."""
    assert rank.steps is not None
    counts = np.arange(len(rank.steps.wall)) >= rank.first
    return float(_of_steps(rank, counts, "cpu").mean()) / 1e9


def _cpus(rank: RankMetrics, ranks: int) -> float | None:
    """Return the CPUs that all ranks of a machine may use.

    Those of ranks that are kept on CPUs of their own are added.
    """
    machine = rank.rank.manifest.machine
    whole, allowed, own = (
        machine.get(name) for name in ("cpus", "effective_cpus", "affinity_cpus")
    )
    if not isinstance(allowed, (int, float)) or allowed <= 0:
        return float(whole) if isinstance(whole, (int, float)) and whole > 0 else None
    pinned = (
        isinstance(own, (int, float))
        and own == allowed
        and isinstance(whole, (int, float))
        and own < whole
    )
    return (
        min(float(allowed) * ranks, float(whole))
        if pinned and isinstance(whole, (int, float))
        else float(allowed)
    )
