"""Made-up convergence of a made-up training, and variants of it. Exact figures, no randomness."""

import math
from dataclasses import replace

from feedline.analysis.convergence.target import price_batch
from feedline.analysis.convergence.training_record import (
    ConvergenceSummary,
    CurvePoints,
    NoiseOverTraining,
    NoiseWindow,
)
from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.profiler.message import ONE_GRADIENT

EPOCH, BATCH, UPDATES = 50_000, 512, 9_800


def curve(name: str, values: list[float], not_finite: int = 0) -> CurvePoints:
    """Evenly over the training, with a pause of its clock in the middle."""
    at = [round(UPDATES * (index + 1) / len(values)) - 1 for index in range(len(values))]
    clock = [update * 0.181 + (300 if update > UPDATES / 2 else 0) for update in at]
    return CurvePoints(
        name,
        at,
        [float((update + 1) * BATCH) for update in at],
        clock,
        values,
        not_finite,
        values[-1] if values else None,
    )


def curves() -> list[CurvePoints]:
    """A loss over two decades, an evaluation a few times, accuracies, and a metric of another
    magnitude.
    """
    shares = [index / 199 for index in range(200)]
    return [
        curve(
            "train loss",
            [2.3 * math.exp(-4.8 * s) * (1 + 0.2 * math.sin(40 * s)) for s in shares],
            3,
        ),
        curve("eval loss", [2.1 * math.exp(-2.2 * s) for s in shares[::20]]),
        curve("lr", [0.4 * min(s / 0.05, 1) * (1 + math.cos(math.pi * s)) / 2 for s in shares]),
        curve("gradient norm", [40 + 25 * math.cos(9 * s) for s in shares]),
        curve("val/accuracy", [0.93 * (1 - math.exp(-3 * s)) for s in shares[::20]]),
        curve(
            "val/top5 accuracy of a long name",
            [0.995 * (1 - math.exp(-5 * s)) for s in shares[::20]],
        ),
    ]


def noise() -> NoiseOverTraining:
    """Twenty windows: most with intervals, one with no upper end that is worth drawing, one at
    least, one at most.
    """
    windows = []
    for index in range(20):
        value = 90 * 1.16**index
        windows.append(
            NoiseWindow(
                (index + 0.5) * UPDATES * BATCH / 20, 490, value, value / 1.6, value * 1.7, ""
            )
        )
    windows[3] = replace(windows[3], low=0.0, high=1e12)
    windows[0] = replace(
        windows[0],
        value=None,
        low=None,
        high=70.0,
        why="the noise is too small to be seen beside the gradient",
    )
    windows[-1] = replace(
        windows[-1],
        value=None,
        low=2_900.0,
        high=None,
        why="the gradient is too small to be seen beside its noise",
    )
    return NoiseOverTraining(480.0, 104.4, 2_900.0, "", "ddp", windows, 12)


def wrong() -> list[Finding]:
    return [
        Finding(
            "same_data",
            Severity.HIGH,
            "all 4 ranks train on the same samples: |g_part|^2 / |g_mean|^2 is 1.000 in all 9,800 "
            "updates",
            [Evidence("part_over_mean", "|g_part|^2 / |g_mean|^2, median", 1.0, "1")],
            "give each rank its own samples: DataLoader(..., sampler=DistributedSampler(dataset))",
            "indices of the ranks' samples that differ within an update",
        ),
        Finding(
            "missing_set_epoch",
            Severity.LOW,
            "set_epoch was not called",
            [],
            "sampler.set_epoch(epoch) before each epoch's loop",
            "",
        ),
    ]


def summary() -> ConvergenceSummary:
    """All there is."""
    notes = ["the noise scale is a proxy"]
    priced = price_batch(noise(), BATCH)
    return ConvergenceSummary(
        curves(),
        noise(),
        priced,
        [],
        [],
        float(UPDATES * BATCH),
        EPOCH,
        UPDATES,
        "warmup=5ep,lr_rule=sqrt",
        notes,
    )


def without_scale() -> ConvergenceSummary:
    """One process that does not accumulate, with a constant loss and nothing else."""
    why = (
        "the noise scale needs gradients of parts of an update: several ranks, or gradient "
        "accumulation over two micro-batches or more"
    )
    unseen = NoiseOverTraining(None, None, None, why, "", [], 0, ONE_GRADIENT)
    return replace(
        summary(),
        curves=[curve("train loss", [0.7] * 40)],
        noise=unseen,
        price=price_batch(unseen, BATCH),
        workers=[],
        fixes="",
    )


def mistaken() -> ConvergenceSummary:
    """Ranks that see the same data: nothing is said of the batch.

    The loss is below 0, and one evaluation was made.
    """
    why = "the gradients are not a mean over distinct samples (same_data)"
    unseen = NoiseOverTraining(None, None, None, why, "ddp", [], 0)
    found = [
        curve("train loss", [-index / 40 for index in range(40)]),
        curve("eval loss", [-0.5]),
        curve("lr", []),
    ]
    return replace(
        summary(),
        curves=found,
        noise=unseen,
        price=price_batch(unseen, BATCH),
        workers=[],
        checks=wrong(),
    )
