"""Gradients of the parts against that of the whole: the same data, or a sum."""

import numpy as np

from feedline.analysis.convergence.checks.setup import ratio_of, usable
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.formatting import count, number
from feedline.analysis.ledger.finding import Evidence, Finding, Severity

#: Equal gradients differ by the rounding of float32 sums only: a norm of 12 million elements was 5e-5 off on a CPU, of their own each.
SAME = 2e-4
FEWEST = 3  # updates, below which luck could make gradients alike


def same_data(recorded: Recorded) -> Finding | None:
    """The gradient of a part equals that of the whole, update for update."""
    ratio = ratio_of(recorded)
    if len(ratio) < FEWEST or float(np.abs(ratio - 1).max()) > SAME:
        return None
    assert recorded.norms is not None
    micro = recorded.norms.how == "accumulation"
    ranks = "both ranks" if recorded.norms.parts == 2 else f"all {recorded.norms.parts} ranks"
    part, plural = ("micro-batch", "es") if micro else ("rank", "s")
    who = "the micro-batches of an update hold" if micro else f"{ranks} train on"
    return Finding(
        "same_data",
        Severity.HIGH,
        message=f"{who} the same samples: the gradient of one {part} has the same squared norm as the mean gradient of all (ratio 1.000 in "
        f"all {count(len(ratio))} updates compared; with different samples, it would be larger). The batch of all {part}{plural} "
        "only repeats the samples of one",
        evidence=[
            Evidence("part_over_mean", "|g_part|^2 / |g_mean|^2, median", float(np.median(ratio)), "1"),
            Evidence("largest_distance", "largest deviation from 1", float(np.abs(ratio - 1).max()), "1"),
            Evidence("updates", "updates", len(ratio), "updates"),
        ],
        fix="Draw a new micro-batch for each backward."
        if micro
        else "Give each rank its own samples: sampler=DistributedSampler(dataset) instead of shuffle=True, and sampler.set_epoch(epoch) "
        "before each epoch. An IterableDataset has to divide its samples among the ranks itself.",
        how_to_check="Print the sample indices that each rank or micro-batch uses in one update. If they differ, this finding is wrong.",
    )


def sum_not_mean(recorded: Recorded) -> Finding | None:
    """The whole's gradient is longer than its parts'. By Jensen's inequality a mean is not: |mean g|^2 <= mean |g|^2."""
    ratio = ratio_of(recorded)
    norms = recorded.norms
    if norms is None or norms.how == "accumulation" or len(ratio) < FEWEST or norms.parts < 2:
        return None  # whether the program divides the losses of micro-batches is unknown
    kept = usable(recorded)
    longer = float(norms.big_sq[kept].mean() / norms.small_sq[kept].mean())
    # a sum of parts with gradients all noise is as many times as long (squared) as there are parts, one without noise that times more;
    # three quarters leave room for parts that were not all seen
    if longer < max(0.75 * norms.parts, 1.1):
        return None
    return Finding(
        "sum_not_mean",
        Severity.HIGH,
        message=f"gradients are summed over the {norms.parts} ranks, not averaged: |g_whole|^2 is {number(longer)} times |g_part|^2, and "
        f"a mean is never longer than its parts. With SGD, that multiplies the learning rate by {norms.parts}",
        evidence=[Evidence("whole_over_part", "|g_whole|^2 / |g_part|^2", longer, "1"), Evidence("parts", "parts", norms.parts, "parts")],
        fix="Average instead: ReduceOp.AVG or grad.div_(world_size). "
        f"With SGD without weight decay or clipping, dividing the learning rate by {norms.parts} works as well.",
        how_to_check="If the loss is a sum over samples by design and the learning rate is tuned for it, this finding is wrong.",
    )
