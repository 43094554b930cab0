"""What a report says about a training's convergence, as plain dataclasses (``Report.convergence``).

Seconds end in ``_s``, shares go from 0 to 1. None: it could not be measured; a ``why`` beside it, or ``notes``, say why.
"""

from dataclasses import dataclass, field

from feedline.analysis.ledger.finding import Finding


@dataclass(frozen=True)
class CurvePoints:
    """One number of the training as it went on, thinned to at most 200 points: the mean over a point's values. Lists have one length."""

    name: str  # "train loss", "eval loss", "lr", or what the program gave to feedline.metric
    updates: list[int]  # optimizer updates made before
    samples: list[float]  # that all ranks together had trained on
    at_s: list[float]  # seconds since the first update
    values: list[float]
    not_finite: int  # values left out because they were NaN or infinite
    final: float | None = None  # what it ended at: train loss, the mean over the last tenth of the samples; others, the last value


@dataclass(frozen=True)
class NoiseWindow:
    """Gradient noise scale of one part of the training, in samples, with its 95 % interval."""

    samples: float  # trained on by the middle of the window, all ranks together
    updates: int  # that it is made from
    value: float | None
    low: float | None  # without a value: it is at least this
    high: float | None  # without a value: it is at most this
    why: str  # why there is no value


@dataclass(frozen=True)
class NoiseOverTraining:
    """Gradient noise scale in samples, McCandlish and others, arXiv:1812.06162, as it went over the training."""

    value: float | None  # of the whole training: each window counts as the progress that was made in it
    low: float | None  # the smallest and the largest window; without a value, the bounds that are known
    high: float | None
    why: str  # why there is no value
    how: str  # how the gradients were seen: "ddp", "hook", "manual", "accumulation" or "fsdp2"; "": not seen
    windows: list[NoiseWindow]
    dropped: int  # updates left out: not finite, of unknown size, or their part was as large as the whole
    reason: str = ""  # why there is no value, as an identifier (profiler/message.py); empty where nothing depends on it


@dataclass(frozen=True)
class BatchPrice:
    """What the batch costs in samples and saves in updates: E/Emin = 1 + B/Bc and S/Smin = 1 + Bc/B."""

    batch: float  # samples per update, all ranks together
    where: str  # against the critical batch: "far above", "above", "near", "below", "far below" or "unknown"
    samples_factor: float | None  # E/Emin: samples to a loss, over the fewest possible
    samples_low: float | None
    samples_high: float | None
    updates_factor: float | None  # S/Smin: updates to a loss, over the fewest possible
    updates_low: float | None
    updates_high: float | None
    message: str = field(metadata={"key": "says"})


@dataclass(frozen=True)
class TimeToTarget:
    """Updates and time to a target on this number of ranks, with bands from the range of the noise scale and the time of a step."""

    workers: int
    batch: float  # samples per update, all workers together
    updates: float | None
    updates_low: float | None
    updates_high: float | None
    time_s: float | None
    low_s: float | None
    high_s: float | None
    source: str  # of the time of a step: "measured", or the law that predicts it
    why: str = ""  # why something is not known


@dataclass(frozen=True)
class ConvergenceSummary:
    """How the training got on, apart from how fast its steps were."""

    curves: list[CurvePoints]
    noise: NoiseOverTraining
    price: BatchPrice | None  # None: samples per update are not known
    workers: list[TimeToTarget]  # always empty: one run alone does not tell it; `feedline converge advise --target` does
    checks: list[Finding]  # what is wrong with how the training is set up, most severe first
    samples: float | None  # trained on in all; None: no loader that says how many it hands over feeds the training
    samples_per_epoch: float | None
    updates: int
    fixes: str  # the --fix text it was run with
    notes: list[str] = field(default_factory=list)
