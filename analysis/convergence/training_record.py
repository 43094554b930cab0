"""What a run holds about its convergence, as columns."""

from dataclasses import dataclass, field
from typing import Any

from feedline.analysis.intervals import FloatArray, IntArray


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
