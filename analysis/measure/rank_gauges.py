"""The gauges of one rank's machine, thinned for a figure, and who used the CPUs as steps ran."""

import os
import re
from collections.abc import Iterable

import numpy as np

from feedline.analysis.intervals import FloatArray, overlap
from feedline.analysis.measure.model import Cpus, Gauge
from feedline.analysis.measure.rank_metrics import COLUMNS, RankMetrics
from feedline.analysis.measure.steps import Steps
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.samplers.gauge_reader import Gauges, read_gauges
from feedline.profiler.store.layout import GAUGES
from feedline.profiler.store.run_folder import Rank

_OF_WORKER = re.compile(r"memory/loader\d+-worker\d+")
#: A reading is the mean since the one before. It counts for the steps if they fill this share of
#: that time: a training of two seconds after ten seconds of imports has one that is about the
#: imports.
_MOSTLY = 0.5
#: CPUs that ranks use together over those that each may use, from which on each has its own.
_TOGETHER = 1.1
_DIGITS = 6  # of the number of a CPU: more are none


def read_rank_gauges(rank: Rank, notes: list[str]) -> list[Gauge]:
    """Return the machine's gauges, thinned for a figure."""
    path = rank.folder / GAUGES
    if not os.path.lexists(path):
        return []
    try:
        sampled = read_gauges(path)
    except (FeedlineError, OSError, ValueError) as error:
        notes.append(f"the machine's gauges cannot be read: {error}")
        return []
    origin = rank.manifest.anchors[0]["perf_counter_ns"] if rank.manifest.anchors else 0
    return list(
        _gauges(
            sampled if rank.slice is None else sampled.between(rank.slice.begin, rank.slice.end),
            origin,
        )
    )


def _spans(times: FloatArray) -> FloatArray:
    """Return what each reading stands for, float64 [n], s: the time since the one before.

    The first ones come more often. A gauge that begins late, or of which the first are forgotten,
    has none before.
    """
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    since = np.diff(times, prepend=max(float(times[0]) - usual, 0.0))
    return np.maximum(since, 1e-9)


def _gauges(sampled: Gauges, origin: int) -> Iterable[Gauge]:
    for index, (name, unit) in enumerate(sampled.names):
        if _OF_WORKER.fullmatch(name):  # full_memory.py reads it
            continue
        chosen = sampled.gauge == index
        values, times = sampled.value[chosen], (sampled.time[chosen] - origin) / 1e9
        if not len(values):
            continue
        groups = np.array_split(np.arange(len(values)), min(len(values), COLUMNS))
        yield Gauge(
            name,
            unit,
            float(np.average(values, weights=_spans(times))),
            float(values.min()),
            float(values.max()),
            [float(times[group[0]]) for group in groups],
            [float(values[group].mean()) for group in groups],
        )


def cpu_use(
    shown: RankMetrics, gauges: list[Gauge], beside: Iterable[tuple[RankMetrics, list[Gauge]]] = ()
) -> Cpus | None:
    """Divide the CPUs into what the training used, what other programs used, and what was free.

    Args:
        shown: the rank whose steps count.
        gauges: its gauges.
        beside: the other ranks of the run and their gauges; those on another machine, or kept on
            other CPUs, are left out.

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
        *((other, read) for other, read in beside if _share_cpus(other, shown)),
    ]
    used = [mean_of(shown, rank, read, "cpu/processes") for rank, read in of_rank]
    if None not in used and sum(filter(None, used)) > _TOGETHER * allowed:
        of_rank, used = of_rank[:1], used[:1]  # more than these CPUs can give: each has its own
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


def _share_cpus(one: RankMetrics, other: RankMetrics) -> bool:
    """Return whether two ranks are on one machine, and may run on the same CPUs, if that is known."""
    if machine_of(one) != machine_of(other):
        return False
    masks = cpu_mask(one), cpu_mask(other)
    return not all(masks) or bool(masks[0] & masks[1])


def cpu_mask(rank: RankMetrics) -> frozenset[int]:
    """Return the numbers of the CPUs that a rank may run on; empty: not known."""
    listed = str(rank.rank.manifest.machine.get("affinity") or "")
    ends = [part.split("-") for part in listed.split(",") if part]
    if not all(end.isdecimal() and len(end) < _DIGITS for part in ends for end in part):
        return frozenset()
    return frozenset(cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1))


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
