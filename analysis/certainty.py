"""How sure the steps of a run are of the share that its input takes: a few steps, or steps that vary, say nothing."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.computing import queued_ns
from feedline.analysis.facts import Certainty, Unseen
from feedline.analysis.gather import RankMetrics
from feedline.analysis.rested import FloatArray
from feedline.analysis.stages import INPUT_STAGES
from feedline.analysis.waits import classify
from feedline.profiler.events import Stage
from feedline.profiler.noise_scale import student

FEWEST = 2  # steps that have an interval
MIN_SHARE = 0.05  # of steps that were only counted, which is left to chance


def certainty(rank: RankMetrics, starts_once: bool) -> Certainty | None:
    """The share of the step that the input takes, with its interval; None without a step.

    Args:
        starts_once: the loader was started once, which does not count as waiting for it.
    """
    steps = rank.steps
    if steps is None or not len(steps.wall):
        return None
    waiting = sum((rank.stages[name] for name in INPUT_STAGES if name in rank.stages), np.zeros(len(steps.wall)))
    if starts_once:
        waiting = waiting - rank.stages.get("epoch_start", 0.0) - classify(steps, rank.ready)["epoch_start"]
    waiting = np.maximum(waiting, 0.0)
    if steps.making is not None:  # how long its functions wait for a CPU is not known
        low, high = _interval(rank, waiting, steps.wall.astype(float))
        return Certainty(rank.estimate.stand_for if rank.estimate is not None else len(steps.wall) - rank.first, low, high)
    inside = queued_ns(rank.main, steps, Stage.NEXT)
    queued = queued_ns(rank.main, steps, Stage.NEXT, Stage.FORWARD, Stage.BACKWARD)
    low, high = _interval(rank, waiting, steps.wall.astype(float))
    own = _interval(rank, np.maximum(waiting - inside, 0.0), (steps.wall - queued).astype(float))
    number = rank.estimate.stand_for if rank.estimate is not None else len(steps.wall) - rank.first
    return Certainty(number, low, high, *own)


def unseen(rank: RankMetrics) -> Unseen | None:
    """What may be input without a loader; None without a step."""
    steps, estimate = rank.steps, rank.estimate
    if steps is None or not len(steps.wall):
        return None
    may_be, wall = steps.unclaimed[rank.first :].astype(float), steps.wall[rank.first :].astype(float)
    share = float(may_be.sum()) / float(wall.sum()) if wall.sum() > 0 else 1.0
    high, counted = interval(may_be, wall)[1], 0.0
    if estimate is not None:  # steps that were only counted may have taken longer, for reasons that nothing tells
        counted = max(1 - float(estimate.walls().mean()) / estimate.mean_ns, 0.0)
    return Unseen(min(share + counted, 1.0), min(high + counted, 1.0), bool(steps.resident[rank.first :].all()) and counted < MIN_SHARE)


def _interval(rank: RankMetrics, waiting: FloatArray, wall: FloatArray) -> tuple[float, float]:
    """Of the share of ``waiting`` in ``wall``, float64 [steps] each."""
    looked = np.ones(len(wall), bool) if rank.steps is None or rank.steps.making is None else rank.steps.making.looked
    if rank.estimate is None:
        return interval(waiting[rank.first :], wall[rank.first :], looked[rank.first :])
    lies = sum(rank.estimate.lies.get(name, 0.0) for name in INPUT_STAGES)
    alike = rank.estimate.alike & looked
    alike = alike if alike.sum() >= FEWEST else rank.estimate.alike
    known = replace(rank.estimate, alike=alike, lies={"input": lies, "rest": 1 - lies})
    parts = {"input": waiting, "rest": np.maximum(wall - waiting, 0.0)}
    sampled, shown = known.sampled(parts), replace(known, alike=rank.estimate.alike)
    share = shown.means(parts)["input"] / shown.mean_ns  # of all steps, of which those that were looked at may be a peculiar choice
    return min(sampled.share_low["input"], share), max(sampled.share_high["input"], share)


def interval(part: FloatArray, whole: FloatArray, looked: npt.NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """95 % interval of sum(part) / sum(whole) over steps: Student's t over the steps' residuals (Cochran, Sampling Techniques, 6.4).

    Args:
        part, whole: float64 [n].
        looked: bool [n], of the steps whose part was measured, and does not stand in for it; None: all.
    """
    seen = np.ones(len(whole), bool) if looked is None else looked
    number, total = int(seen.sum()), float(whole[seen].sum())
    if number < FEWEST or total <= 0:
        return 0.0, 1.0
    residuals = part[seen] - float(part[seen].sum()) / total * whole[seen]
    half = student(number - 1) * float(np.sqrt((residuals**2).sum() * number / (number - 1))) / total
    share = float(part.sum()) / float(whole.sum())
    return max(share - half, 0.0), min(share + half, 1.0)
