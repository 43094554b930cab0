"""What each rank's mean step takes of the CPUs that it shares with other ranks."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from feedline.analysis.measure import machine_use
from feedline.analysis.measure.batch_making import process_cpu_s
from feedline.analysis.measure.costs import accounted_cpu_s
from feedline.analysis.measure.rank_gauges import cpu_mask, machine_of, mean_of, read_rank_gauges
from feedline.analysis.measure.rank_metrics import RankMetrics, step_summary
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.predict.main_process import ASLEEP, TIMED, asking_cpu_s, of_steps
from feedline.analysis.ranks.shared_cpus import RankCpu
from feedline.profiler.events import Stage

# stages whose CPU time is measured, or which are not the step's own
_AS_RECORDED = (*INPUT_STAGES, "forward", "backward")


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
    known_s = _timed_s(rank) + asking_cpu_s(rank, int(workers))
    queued_s = machine_use.runqueue_s(rank.main, rank.steps, rank.first, Stage.NEXT, *TIMED) or 0.0
    rest_s = sum(s for name, s in step.stages.items() if name not in _AS_RECORDED)
    computes = used * step.mean_s - making_s - known_s >= ASLEEP * rest_s
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
    return float(of_steps(rank, counts, "cpu").mean()) / 1e9


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
