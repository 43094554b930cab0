"""What a run holds about its convergence: as columns, and as its report says it (plain dataclasses)."""

from dataclasses import dataclass, field
from typing import Any

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.ledger.finding import Finding


@dataclass(frozen=True)
class Curve:
    """One number of the training as it went on, in the order of updates.

    Not every update is there in a long run.

    Attributes:
        updates: int64 [n], optimizer steps made before.
        samples: float64 [n], samples that all ranks together had trained on.
        at_s: float64 [n], seconds since the first update.
        values: float64 [n]; NaN and infinity as they were.
    """

    updates: IntArray
    samples: FloatArray
    at_s: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class GradientNorms:
    """Squared norms of a part's mean gradient and of the whole's, update by update.

    Where ranks were recorded, they are the mean over them.

    Attributes:
        updates, samples, at_s: as in a Curve.
        small_sq: float64 [n], |g_b|^2, mean over the parts that were seen.
        big_sq: float64 [n], |g_B|^2 of the mean over all parts, as the optimizer got it before
            clipping.
        b, B: float64 [n], samples behind the two. NaN: unknown.
        how: "ddp", "hook", "manual" (all_reduce by the program), "accumulation" or "fsdp2".
        parts: parts in the whole: ranks, or micro-batches.
    """

    updates: IntArray
    samples: FloatArray
    at_s: FloatArray
    small_sq: FloatArray
    big_sq: FloatArray
    b: FloatArray
    B: FloatArray
    how: str
    parts: int


@dataclass(frozen=True)
class TrainingRecord:
    """A run's convergence, as it was recorded.

    Attributes:
        name: of the run folder.
        curves: by name: "train loss" (what backward was called on, summed over an update's
            micro-batches), "eval loss", "lr" (of the first parameter group), and what the program
            gave to ``feedline.metric``.
        norms: None: not seen; ``why`` says what it needs.
        why: why there are no norms; "" where there are.
        setup: ``Manifest.training`` of rank 0 (profiler/taps/convergence/training_setup.py says its
            keys).
        ranks: processes.
        batch: samples per update, all ranks together, median; None: unknown.
        samples: trained on in all, all ranks together.
        samples_per_epoch: None where the loader's length is unknown.
        samples_known: False where no loader feeds the training: ``samples`` are then rows that its
            models were given, which compare moments of this run and are not its samples.
        library: whose loaders feed the training, or whose stream a DataLoader gives it; "": neither.
        updates: made in all.
        step_s: mean seconds of a step, with all its updates.
        ended: the run came to its end by itself, without an error.
        fixes: the ``--fix`` text it was run with, "" for none.
    """

    name: str
    curves: dict[str, Curve]
    norms: GradientNorms | None
    why: str
    setup: dict[str, object]
    ranks: int
    batch: float | None
    samples: float
    samples_per_epoch: float | None
    updates: int
    step_s: float | None
    ended: bool
    fixes: str = ""
    samples_known: bool = True
    library: str = ""
    notes: list[str] = field(default_factory=list)


def entries_of(recorded: TrainingRecord, key: str) -> list[dict[str, Any]]:
    """Return a list of the setup, without entries that are not dictionaries."""
    entries = recorded.setup.get(key)
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


@dataclass(frozen=True)
class CurvePoints:
    """One number of the training as it went on, thinned to at most 200 points.

    Each is the mean over a point's values. Lists have one length.

    Attributes:
        name: train loss, eval loss, lr, or the name passed to feedline.metric.
        updates: Per point: optimizer updates made before; at most 200 points.
        samples: Per point: samples that all ranks together had trained on; if convergence.samples
            is null, rows of the models' input.
        at_s: Per point: since the first update. Unit: s.
        values: Per point: mean over the values that it stands for.
        not_finite: Values left out because they were NaN or infinite.
        final: Value at its end: of train loss the mean over the last tenth of the samples, of
            others the last. None: none is finite.
    """

    name: str
    updates: list[int]
    samples: list[float]
    at_s: list[float]
    values: list[float]
    not_finite: int
    final: float | None = None


@dataclass(frozen=True)
class NoiseWindow:
    """Gradient noise scale of one part of the training, in samples, with its 95 % interval.

    Attributes:
        samples: Samples trained on by the middle of the window, all ranks together.
        updates: Updates measured in it.
        value: The noise scale. Unit: samples. None: why says why.
        low: Lower end of the 95 % interval; without a value: it is at least this. Unit: samples.
            None: not known.
        high: Upper end of the 95 % interval; without a value: it is at most this. Unit: samples.
            None: not known.
        why: Why the value is missing; empty if it is not.
    """

    samples: float
    updates: int
    value: float | None
    low: float | None
    high: float | None
    why: str


@dataclass(frozen=True)
class NoiseOverTraining:
    """Gradient noise scale in samples, as it went over the training.

    McCandlish and others, arXiv:1812.06162.

    Attributes:
        value: Noise scale of the whole training: the windows weighted by the progress made in them.
            Unit: samples. None: why says why.
        low: Lower end of its range over the windows; if value is null, a lower bound. Unit:
            samples. None: not known.
        high: Upper end of its range over the windows; if value is null, an upper bound. Unit:
            samples. None: not known.
        why: Why the value is missing; empty if it is not.
        how: How gradients were seen: ddp, hook, manual, accumulation or fsdp2; empty: not at all.
        windows: Parts of the training, in their order.
        dropped: Updates left out: not finite, of unknown size, or their part was as large as the
            whole.
        reason: Why the value is missing, as a stable name: one_gradient; empty where no code
            depends on it.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str
    how: str
    windows: list[NoiseWindow]
    dropped: int
    reason: str = ""  # profiler/message.py


@dataclass(frozen=True)
class BatchPrice:
    """What the batch costs in samples and saves in updates.

    E/Emin = 1 + B/Bc and S/Smin = 1 + Bc/B.

    Attributes:
        batch: Samples per update, all ranks together. Unit: samples.
        where: Against the critical batch: far above, above, near, below, far below or unknown.
        samples_factor: E/Emin: samples needed to reach a loss, over the fewest possible. Unit: 1.
            None: the noise scale is not known.
        samples_low: The same at the upper end of the noise scale's range. Unit: 1. None: that end
            is not known.
        samples_high: The same at the lower end of the noise scale's range. Unit: 1. None: that end
            is not known.
        updates_factor: S/Smin: updates needed to reach a loss, over the fewest possible. Unit: 1.
            None: the noise scale is not known.
        updates_low: The same at the lower end of the noise scale's range. Unit: 1. None: that end
            is not known.
        updates_high: The same at the upper end of the noise scale's range. Unit: 1. None: that end
            is not known.
        message: All of it in a sentence.
    """

    batch: float
    where: str
    samples_factor: float | None
    samples_low: float | None
    samples_high: float | None
    updates_factor: float | None
    updates_low: float | None
    updates_high: float | None
    message: str = field(metadata={"key": "says"})


@dataclass(frozen=True)
class TimeToTarget:
    """Updates and time to a target on this number of ranks.

    Bands come from the range of the noise scale and the time of a step.

    Attributes:
        workers: Processes.
        batch: Samples per update, all ranks together. Unit: samples.
        updates: Updates to the target. None: why says why.
        updates_low: The same, from the noise scale's range. None: as updates.
        updates_high: The same, from the noise scale's range. None: as updates, or the curve may
            not come there.
        time_s: Updates times the time of one. Unit: s. None: why says why.
        low_s: Lower end of its band. Unit: s. None: as time_s.
        high_s: Upper end of its band. Unit: s. None: as time_s, or the curve may not come there.
        source: Of the step time: measured, or the scaling law that predicts it.
        why: Why something is unknown; empty otherwise.
    """

    workers: int
    batch: float
    updates: float | None
    updates_low: float | None
    updates_high: float | None
    time_s: float | None
    low_s: float | None
    high_s: float | None
    source: str
    why: str = ""


@dataclass(frozen=True)
class ConvergenceSummary:
    """How the training got on, apart from how fast its steps were.

    Attributes:
        curves: Numbers over the course of the training: train loss, eval loss, lr, then those
            passed to feedline.metric.
        noise: The gradient noise scale over the training.
        price: What the batch costs in samples and saves in updates. None: samples per update are
            not known.
        workers: Always empty: `feedline converge advise --target` predicts the time by number of
            ranks, from several runs.
        checks: Mistakes in the setup of the training, most severe first; those of severity high are
            also among the findings.
        samples: Samples trained on, all ranks together. None: no loader feeds the training, or none
            that reports how many samples it delivers.
        samples_per_epoch: Samples in an epoch, all ranks together. None: the loader has no len(),
            or more than one loader feeds the training.
        updates: Optimizer updates in all.
        fixes: Value of the run's --fix option; empty without one.
        notes: What a reader should know about these figures.
    """

    curves: list[CurvePoints]
    noise: NoiseOverTraining
    price: BatchPrice | None
    workers: list[TimeToTarget]
    checks: list[Finding]
    samples: float | None
    samples_per_epoch: float | None
    updates: int
    fixes: str
    notes: list[str] = field(default_factory=list)
