"""Gradients of the parts against that of the whole: the same data, or a sum."""

import numpy as np

from feedline.analysis.convergence.checks.setup import ratio_of, usable
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import count, number

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
    who = "the micro-batches of an update hold" if micro else f"all {recorded.norms.parts} ranks train on"
    return Finding(
        "same_data",
        Severity.HIGH,
        says=f"{who} the same samples: |g_part|^2 / |g_mean|^2 is 1.000 in all {count(len(ratio))} updates, and distinct samples make it "
        "larger. What was meant as a larger batch is the small one, made several times",
        evidence=[
            Evidence("part_over_mean", "|g_part|^2 / |g_mean|^2, median", float(np.median(ratio)), "1"),
            Evidence("largest_distance", "its largest distance from 1", float(np.abs(ratio - 1).max()), "1"),
            Evidence("updates", "updates", len(ratio), "updates"),
        ],
        fix="draw a new micro-batch for each backward"
        if micro
        else "give each rank its own samples: DataLoader(..., sampler=DistributedSampler(dataset)), and set_epoch each epoch",
        disproof="indices of the ranks' samples that differ within an update",
    )


def sum_not_mean(recorded: Recorded) -> Finding | None:
    """The whole's gradient is longer than its parts'. By Jensen's inequality a mean is not: |mean g|^2 <= mean |g|^2."""
    ratio = ratio_of(recorded)
    norms = recorded.norms
    if norms is None or norms.how == "accumulation" or len(ratio) < FEWEST or norms.parts < 2:
        return None  # of micro-batches nobody knows whether the program divides their losses
    kept = usable(recorded)
    longer = float(norms.big_sq[kept].mean() / norms.small_sq[kept].mean())
    # a sum of parts with gradients all noise is as many times as long (squared) as there are parts, one without noise that times more;
    # three quarters leave room for parts that were not all seen
    if longer < max(0.75 * norms.parts, 1.1):
        return None
    return Finding(
        "sum_not_mean",
        Severity.HIGH,
        says=f"gradients are added up over {norms.parts} ranks, not averaged: "
        f"|g_whole|^2 is {number(longer)} times |g_part|^2, and a mean is never longer than its parts. The rate is {norms.parts} times "
        "what it says",
        evidence=[Evidence("whole_over_part", "|g_whole|^2 / |g_part|^2", longer, "1"), Evidence("parts", "parts", norms.parts, "parts")],
        fix=f"divide by {norms.parts}: ReduceOp.AVG, or grad.div_(world_size), or divide the rate by it and say so",
        disproof="a loss that is meant as a sum over the samples, with a rate made for that",
    )
