"""What the steps themselves take of the machine: operations, CPU and GPU seconds, bytes moved."""

import numpy as np

from feedline.analysis.intervals import IntArray, holds, overlap
from feedline.analysis.measure.model import Gauge, Moved
from feedline.analysis.measure.step_model import Flop
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Arithmetic, Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

_NAMES = {int(one): one.name.lower() for one in Arithmetic if one is not Arithmetic.UNKNOWN}
_FEWEST_READINGS = 3  # of a gauge that is read once a second: fewer say little about the steps
_STAGES = {"transport": Stage.TRANSPORT, "pin": Stage.PIN, "copy": Stage.COPY}


def flop(main: Process, steps: Steps) -> Flop | None:
    """Return the operations of the step that was counted, None when none was."""
    counted = main.view(Stage.FLOP)
    if not len(counted):
        return None
    end = int(counted["start"][-1] + counted["wall"][-1])
    at = int(np.searchsorted(steps.start, end, "right")) - 1
    inside = at >= 0 and end <= steps.boundaries.end[at] and steps.samples[at]
    samples = float(steps.samples[at]) if inside else float(steps.samples.mean())
    if not samples:
        return None
    return Flop(
        float(counted["forward_flop"][-1]),
        float(counted["backward_flop"][-1]),
        samples,
        _NAMES.get(int(counted["arithmetic"][-1]), ""),
    )


def _of_steps(main: Process, steps: Steps, *stages: Stage) -> Records:
    """Return the main thread's records of stages whose wait for a CPU was measured.

    Evaluation is left out: it is not part of the steps.
    """
    records = main.of(*stages)
    measured = (records["runqueue"] >= 0) & (records["thread"] == 0)
    return records[measured & ~holds(steps.boundaries.evaluation, records["start"])]


def runqueue_s(main: Process, steps: Steps, first: int, *stages: Stage) -> float | None:
    """Return how long the main thread was runnable without a CPU inside a mean step, s.

    Args:
        first: index of the first step that counts.
        stages: whose records are looked at.
    """
    records = _of_steps(main, steps, *stages)
    inside = steps.boundaries.step_of(records["start"]) >= first
    if not inside.any():
        return None
    return float(records["runqueue"][inside].sum()) / (len(steps.start) - first) / 1e9


def queued_share(main: Process, steps: Steps, first: int, *stages: Stage) -> float | None:
    """Return the share (0 to 1) of the time in which the main thread wants a CPU that it has none.

    Only these stages inside steps count. None: not measured.

    Args:
        first: index of the first step that counts.
    """
    records = _of_steps(main, steps, *stages)
    records = records[records["cpu"] >= 0]
    records = (
        records[records["start"] >= steps.start[first]] if first < len(steps.start) else records[:0]
    )
    queued = float(records["runqueue"].sum())
    wanted = float((records["runqueue"] + records["cpu"]).sum())
    return queued / wanted if wanted else None


def queued_ns(main: Process, steps: Steps, *stages: Stage) -> IntArray:
    """Return how long the main thread was runnable without a CPU, in these stages.

    int64 [steps], ns; 0 where that was not measured.
    """
    records = _of_steps(main, steps, *stages)
    records = records[records["runqueue"] > 0]
    at = steps.boundaries.step_of(records["start"])
    inside = at >= 0
    queued = np.minimum(records["runqueue"], records["wall"])[inside]
    return np.minimum(
        np.bincount(at[inside], queued, len(steps.start)).astype(np.int64), steps.wall
    )


def cpu_s(steps: Steps, first: int, gauge: Gauge, origin_ns: int, mean_s: float) -> float | None:
    """Return the mean CPU seconds a step of the training process and all it started.

    None: too few readings while the steps ran.

    Args:
        gauge: CPU seconds per second of the tree of processes, over the whole run.
        origin_ns: the time from which its readings are counted.
        mean_s: of all steps, also those that were only counted: recorded ones can be longer.
    """
    if first >= len(steps.wall) or len(gauge.at_s) < _FEWEST_READINGS:
        return None
    at = (np.array(gauge.at_s) * 1e9).astype(np.int64) + origin_ns
    evaluation = steps.boundaries.evaluation
    since = np.append(at[0], at[:-1])  # a rate is that of the time since the reading before
    inside = (since >= steps.start[first]) & (at <= steps.boundaries.end[-1])
    inside &= overlap(since, at, evaluation[:, 0], evaluation[:, 1]) == 0
    rates = np.array(gauge.values)[inside]
    return float(rates.mean()) * mean_s if len(rates) >= _FEWEST_READINGS else None


def gpu_stages(main: Process, steps: Steps, first: int) -> dict[str, float] | None:
    """Return the mean seconds per step of the GPU by stage; None when no GPU was timed.

    A stage's mean is over the steps all of whose records of that stage were timed: not those whose
    events were read after a window ended. Evaluation is left out.

    Args:
        first: index of the first step that counts.
    """
    evaluation, timed = steps.boundaries.evaluation, main.view(Stage.GPU)
    timed = timed[~holds(evaluation, timed["host_start"])]
    number_of_steps = len(steps.wall) - first
    means: dict[str, float] = {}
    for number in sorted(set(timed["of_stage"].tolist())):
        hosts = main.of(Stage(number))
        hosts = hosts[~holds(evaluation, hosts["start"])]
        marks = timed[timed["of_stage"] == number]
        step = steps.boundaries.step_of(marks["host_start"]) - first
        counts = np.bincount(step[step >= 0], minlength=number_of_steps)
        wanted = steps.boundaries.step_of(hosts["start"]) - first
        whole = (counts > 0) & (
            counts == np.bincount(wanted[wanted >= 0], minlength=number_of_steps)
        )
        if whole.any():
            spent = np.bincount(step[step >= 0], marks["wall"][step >= 0], number_of_steps)
            means[Stage(number).name.lower()] = float(spent[whole].mean()) / 1e9
    return means or None


def moved_per_step(main: Process, steps: Steps, first: int) -> dict[str, Moved]:
    """Return means per step of each stage, of the recorded steps that count.

    A stage that did not occur is left out, and evaluation.

    Args:
        first: index of the first step that counts.
    """
    number_of_steps = len(steps.wall) - first
    means = {}
    for name, stage in _STAGES.items():
        records = main.of(stage)
        inside = steps.boundaries.step_of(records["start"]) >= first
        records = records[inside & ~holds(steps.boundaries.evaluation, records["start"])]
        if len(records):
            nbytes, measured = float(records["nbytes"].sum()), records["cpu"][records["cpu"] >= 0]
            pageable = float(records["nbytes"][records["flags"] & Flag.PINNED == 0].sum())
            means[name] = Moved(
                times=len(records) / number_of_steps,
                nbytes=nbytes / number_of_steps,
                cpu_s=float(measured.sum()) / number_of_steps / 1e9 if len(measured) else None,
                pageable=pageable / nbytes if nbytes else 0.0,
            )
    return means
