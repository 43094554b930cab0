"""Whether a fix holds: branches of one training with it, without it and with its control, by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.convergence import curves
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.profiler.noise_scale import mean_interval

_SAME_SAMPLES = 0.02  # arms may differ by so much: a last batch that one drops and another does not


@dataclass(frozen=True)
class Branch:
    """One training of one arm.

    Attributes:
        arm: "baseline", "fix" or "control".
        value: of the metric at its end; None: it failed.
        samples, updates: trained on, made.
        step_s: mean seconds of an update.
        failed: why it says nothing; "" where it does.
    """

    arm: str
    seed: int
    value: float | None
    samples: float
    updates: int
    step_s: float | None
    failed: str = ""


@dataclass(frozen=True)
class _ArmDifference:
    """By how much one arm is better than another.

    It is the mean over seeds of the paired differences, with the 95 % interval by Student's t.
    """

    than: str
    mean: float
    low: float
    high: float
    seeds: int

    def gain(self) -> str:
        """Return the mean with its interval."""
        return f"{self.mean:.4g} ({self.low:.4g} to {self.high:.4g})"

    def loss(self) -> str:
        """Return the same of how much worse it is."""
        return f"{-self.mean:.4g} ({-self.high:.4g} to {-self.low:.4g})"


@dataclass(frozen=True)
class FixTrial:
    """What a verification found.

    Attributes:
        verdict: "accept", "reject" or "inconclusive".
        why: in a sentence, with figures.
    """

    fix: str
    control: str
    metric: str
    lower_is_better: bool
    branches: list[Branch]
    differences: list[_ArmDifference]
    verdict: str
    why: str


def usual_metric(runs: Sequence[TrainingRecord]) -> str:
    """Choose a metric that all runs have.

    That is one of the program's own whose name says what is better, else the loss of evaluations,
    else the training's.

    Raises:
        ValueError: no run has any.
    """
    shared = set.intersection(*(set(run.curves) for run in runs)) - {"lr"} if runs else set()
    own = sorted(
        name
        for name in shared - {"train loss", "eval loss"}
        if curves.is_lower_better(name) is not None
    )
    for name in (*own, "eval loss", "train loss"):
        if name in shared:
            return name
    raise ValueError(
        "the runs have no metric in common: neither a loss nor feedline.metric() was recorded"
    )


def final_value(run: TrainingRecord, metric: str) -> float:
    """Return a metric at the end of a run (curves.final_value_of).

    NaN: it has none, or was infinite or NaN at the end.
    """
    curve = run.curves.get(metric)
    if curve is None or not len(curve.values):
        return math.nan
    ends = (
        curve.values[curve.samples >= (1 - curves.TAIL) * curve.samples[-1]]
        if metric == curves.TRAIN
        else curve.values[-1:]
    )
    value = curves.final_value_of(metric, curve)
    return value if value is not None and np.isfinite(ends).all() else math.nan


def decide(
    fix: str,
    control: str,
    metric: str,
    branches: list[Branch],
    margin: float = 0.0,
    lower_is_better: bool | None = None,
) -> FixTrial:
    """Accept a fix that beats the training as it is and its control, with 95 % confidence each.

    Reject one that is worse than either, or that makes the training diverge. Everything else is
    inconclusive.

    Args:
        fix: its name.
        control: name of the control.
        metric: what is compared.
        branches: of all arms and seeds.
        margin: what it must be better than the baseline by, in the metric's unit.
        lower_is_better: of the metric; None: as its name says.
    """
    lower = curves.is_lower_better(metric) if lower_is_better is None else lower_is_better
    assert lower is not None, metric
    differences = [
        difference
        for than in ("baseline", "control")
        if (difference := _difference(branches, than, lower)) is not None
    ]
    verdict, why = _judged(control, branches, differences, margin)
    return FixTrial(fix, control, metric, lower, branches, differences, verdict, why)


def _difference(branches: list[Branch], than: str, lower: bool) -> _ArmDifference | None:
    """Return how much better "fix" is than another arm, over the seeds that both have.

    None with fewer than two.
    """
    values = {
        (branch.arm, branch.seed): branch.value for branch in branches if branch.value is not None
    }
    pairs = [
        (value, values[than, seed])
        for (arm, seed), value in values.items()
        if arm == "fix" and (than, seed) in values
    ]
    if len(pairs) < 2:
        return None
    gains = [(other - own) if lower else (own - other) for own, other in pairs]
    return _ArmDifference(than, *mean_interval(gains), len(gains))


def _judged(
    control: str, branches: list[Branch], differences: list[_ArmDifference], margin: float
) -> tuple[str, str]:
    """Return the verdict and its reason."""
    failed = {
        arm: [branch for branch in branches if branch.arm == arm and branch.failed]
        for arm in ("baseline", "fix", "control")
    }
    if failed["fix"] and not failed["baseline"]:
        first = failed["fix"][0]
        runs = f"{len(failed['fix'])} training run{'s' * (len(failed['fix']) > 1)}"
        return (
            "reject",
            f"with the fix, {runs} failed (seed {first.seed}: {first.failed}); without it, none "
            f"did",
        )
    if failed["baseline"]:
        first = failed["baseline"][0]
        return "inconclusive", f"the unchanged training failed (seed {first.seed}: {first.failed})"
    samples = [branch.samples for branch in branches if not branch.failed]
    if max(samples) > (1 + _SAME_SAMPLES) * min(samples):
        return (
            "inconclusive",
            f"the arms trained on different numbers of samples: {min(samples):,.0f} to "
            f"{max(samples):,.0f}",
        )
    by_arm = {found.than: found for found in differences}
    base, beside = by_arm.get("baseline"), by_arm.get("control")
    if base is None:
        return (
            "inconclusive",
            "a single seed does not show the spread between seeds: use --seeds 3 or more",
        )
    if base.high < 0:
        return "reject", f"worse than the unchanged training by {base.loss()}"
    if beside is not None and beside.high < 0:
        return "reject", f"its control ({control}) is better by {beside.loss()}"
    if base.low <= margin:
        return (
            "inconclusive",
            f"gain over the unchanged training {base.gain()} with {base.seeds} seeds: not "
            f"certainly above {margin:.4g}",
        )
    better = f"better than the unchanged training by {base.gain()}"
    if failed["control"]:
        first = failed["control"][0]
        return (
            "inconclusive",
            f"{better}, but its control ({control}) failed (seed {first.seed}: {first.failed})",
        )
    if beside is None:
        return "accept", better
    if beside.low <= 0:
        return (
            "inconclusive",
            f"{better}, but not better than its control ({control}): {beside.gain()}; use the "
            f"simpler one",
        )
    return "accept", f"{better}, and better than its control ({control}) by {beside.gain()}"
