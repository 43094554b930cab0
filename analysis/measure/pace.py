"""How fast one training process goes: which steps count, and its samples and steps per second."""

import numpy as np

from feedline.analysis.intervals import IntArray, length
from feedline.analysis.measure.counted_steps import Counted, Estimate
from feedline.analysis.measure.kept_windows import UPDATES, batches_stand_for, times
from feedline.analysis.measure.model import Throughput
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

# with this many steps or more, the first is left out of the means: it starts workers, compiles and
# allocates
_WARM_UP = 4
# the steps up to the one whose FLOPs were counted (0.1 s slower) are excluded if they are at most
# one in two
_COUNTED = 2


def first_step(main: Process, steps: Steps) -> int:
    """Return the index of the first step that counts in the means."""
    counted = main.of(Stage.FLOP)["start"]
    # once more where an optimizer came late
    after = int(np.searchsorted(steps.start, counted.min(), "right")) if len(counted) else 0
    warm_up = int(len(steps.wall) >= _WARM_UP)
    return max(after, warm_up) if _COUNTED * after <= len(steps.wall) else warm_up


def stands_for(main: Process, steps: Steps) -> float:
    """Return how many steps each of those recorded in full stands for; 1: no window was forgotten.

    Those that were only counted in rests are not among them.
    """
    updates = UPDATES[steps.boundaries.by]
    at = steps.boundaries.step_of(main.of(updates)["start"])
    return times(main, updates, int(np.count_nonzero(at >= 0)))


def throughput_of(main: Process, steps: Steps | None) -> Throughput:
    """Return the throughput from the training process alone.

    This is the one definition of a run's samples/s, whatever shows it.
    """
    if steps is not None and not len(steps.wall) and main.stride > 1:
        return _of_broken(main, steps)
    if steps is None or not len(steps.wall):
        return Throughput(None, None, 0, 0, 0, None)
    first, counted = first_step(main, steps), Counted.of(main)
    estimate = Estimate.of(main, steps, first)
    wall, number = float(steps.wall[first:].sum()), len(steps.wall) - first
    if estimate is not None:
        wall, number = estimate.mean_ns, 1
    steps_per_s = number / (wall / 1e9) if wall > 0 else None
    taken = counted.samples(steps.boundaries.training_loaders)
    batch_size = float(_trained_on(steps.samples).sum() + taken) / (
        len(steps.samples) + counted.number
    )
    if len(steps.wall) >= _WARM_UP and not taken and not steps.samples[1:].any():
        batch_size = 0.0  # the first step took all: what the others train on is not known
    factor = stands_for(main, steps)
    rate = batch_size * steps_per_s if steps_per_s and steps.skipped is None else None
    return Throughput(
        samples_per_s=rate or None,
        steps_per_s=steps_per_s,
        samples=round(int(steps.samples.sum()) * factor) + taken,
        steps=round(len(steps.wall) * factor) + counted.number,
        steps_in_detail=len(steps.wall),
        batch_size=batch_size or None,
    )


def _of_broken(main: Process, steps: Steps) -> Throughput:
    """Return the throughput where no kept window holds a whole step: from the first record on."""
    by, loaders, counted = steps.boundaries.by, steps.boundaries.training_loaders, Counted.of(main)
    in_turn = len(np.unique(main.of(UPDATES[by])["number"])) if by == "optimizer" else 1
    number = main.total(UPDATES[by])["records"] // max(in_turn, 1) + counted.number
    stand_for, asked = batches_stand_for(main, loaders, by), steps.asked
    kept = ((asked["samples"][asked["source"] == one].sum(), one) for one in loaders)
    samples = round(sum(float(own) * stand_for.get(one, 1.0) for own, one in kept))
    samples += counted.samples(loaders)
    first = main.records[main.records["thread"] == 0]
    evaluated = length(steps.boundaries.evaluation) * steps.boundaries.evaluation_stands_for
    wall_s = (int((first["start"] + first["wall"]).max() - first["start"].min()) - evaluated) / 1e9
    per_s = 1 / wall_s if wall_s > 0 else 0.0
    return Throughput(
        samples_per_s=samples * per_s or None,
        steps_per_s=number * per_s or None,
        samples=samples,
        steps=number,
        steps_in_detail=0,
        batch_size=samples / number if number else None,
    )


def _trained_on(samples: IntArray) -> IntArray:
    """Return the samples that each step trained on, int64 [steps].

    They are those taken, without what the first step fetched ahead of a training that was ended
    before it came to it. Where a training ends by itself, the last step takes fewer instead.
    """
    if len(samples) > 2 and samples[0] > samples[1] > 0 and (samples[1:] == samples[1]).all():
        return np.full_like(samples, samples[1])
    return samples
