"""Who used the CPUs that a run may use while its steps ran: itself, or other programs."""

from collections.abc import Iterable

import numpy as np

from feedline.analysis.intervals import overlap
from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.measure.model import Cpus, Gauge
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Stage

#: A reading is the mean since the one before. It counts for the steps if they fill this share of
#: that time: a training of two seconds after ten seconds of imports has one that is about the
#: imports.
_MOSTLY = 0.5


def cpu_use(
    shown: RankMetrics, gauges: list[Gauge], beside: Iterable[tuple[RankMetrics, list[Gauge]]] = ()
) -> Cpus | None:
    """Divide the CPUs into what the training used, what other programs used, and what was free.

    Args:
        shown: the rank whose steps count.
        gauges: its gauges.
        beside: the other ranks of the run and their gauges; those on another machine are left out.

    Returns:
        None where the manifest does not say how many CPUs there are. Figures are None where too
        little was sampled while the steps ran.
    """
    machine = shown.rank.manifest.machine
    whole, allowed, quota = (
        _number(machine.get(name)) for name in ("cpus", "effective_cpus", "cpu_quota")
    )
    allowed = allowed or whole
    if allowed is None:
        return None
    mask = _number(machine.get("affinity_cpus")) or (whole if whole == allowed else None)
    of_rank = [
        (shown, gauges),
        *((other, read) for other, read in beside if machine_of(other) == machine_of(shown)),
    ]
    used = [mean_of(shown, rank, read, "cpu/processes") for rank, read in of_rank]
    own = (
        None
        if None in used
        else min(sum(cpus_of_rank for cpus_of_rank in used if cpus_of_rank is not None), allowed)
    )
    busy = (
        mean_of(shown, shown, gauges, "cpu/allowed")
        if mask != whole
        else mean_of(shown, shown, gauges, "cpu/machine")
    )
    if own is None or busy is None or mask is None:
        return Cpus(allowed, quota, mask, own, None, None, len(of_rank))
    others = max(0.0, busy * mask - own)
    return Cpus(
        allowed,
        quota,
        mask,
        own,
        others,
        max(0.0, min(mask - own - others, allowed - own)),
        len(of_rank),
    )


def mean_of(shown: RankMetrics, rank: RankMetrics, gauges: list[Gauge], name: str) -> float | None:
    """Return the mean of a rank's gauge while the shown rank's steps ran.

    None: it was not sampled then.
    """
    gauge = next((gauge for gauge in gauges if gauge.name == name), None)
    anchors = rank.rank.manifest.anchors
    if gauge is None or shown.steps is None or not anchors:
        return None
    return _while_steps_ran(gauge, shown.steps, shown.first, anchors[0]["perf_counter_ns"])


def _while_steps_ran(gauge: Gauge, steps: Steps, first: int, origin_ns: int) -> float | None:
    """Return the mean of a gauge over the readings that are mostly of steps; None without one.

    Args:
        first: index of the first step that counts.
        origin_ns: the time from which its readings are counted.
    """
    if first >= len(steps.wall) or not len(gauge.at_s):
        return None
    at = (np.array(gauge.at_s) * 1e9).astype(np.int64) + origin_ns
    evaluation = steps.boundaries.evaluation
    since = np.append(origin_ns, at[:-1])
    begin, end = int(steps.start[first]), int(steps.boundaries.end[-1])
    inside = (
        np.minimum(at, end)
        - np.maximum(since, begin)
        - overlap(since, at, evaluation[:, 0], evaluation[:, 1])
    )
    weight = np.where(inside > _MOSTLY * (at - since), inside, 0)
    return float(np.average(np.array(gauge.values), weights=weight)) if weight.any() else None


def machine_of(rank: RankMetrics) -> tuple[object, str]:
    """Return what ranks of one machine have in common, as far as it is known."""
    clock_records = rank.main.of(Stage.CLOCK)
    return rank.rank.manifest.place.get("group_rank"), rank.main.names.get(
        int(clock_records["source"][-1]), ""
    ) if len(clock_records) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
