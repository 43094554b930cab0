"""What kind of loss a run has: alone, or against one of a smaller batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.convergence.curves import (
    TRAIN,
    CurveLevel,
    is_higher_better,
    level_at,
    running_mean,
    words_of_name,
)
from feedline.analysis.convergence.training_record import Curve, TrainingRecord
from feedline.analysis.ledger.finding import SHARE, Evidence
from feedline.analysis.text.formatting import count, counted, number, share

#: A loss that climbs back by this share of all that it had come down broke out. Healthy trainings
#: at batch 32 climbed back by 0.26.
_CLIMB = 0.5
_HELD_OUT = ("eval", "val", "valid", "validation", "test")
_RECALIBRATED = " recalibrated"
_EVAL = "eval loss"
#: Differences within this many standard errors are noise.
_NOISE_ERRORS = 3.0
#: Two trainings that differ in their seed alone differ by as much, 19 times of 20: 4 % of what the
#: loss came down, 4 points of a hundred for an accuracy (1.96 sqrt(2) times the acceptance table's
#: root mean square deviation over seeds: 0.028 of a loss that fell by 2.1, and 1.4 points;
#: docs/measured/convergence-table.md), and at least 10 % of the loss. With n seeds on either side 1
#: / sqrt(n) of it.
_OF_LOSS, _OF_FALL, _OF_ACCURACY = 0.10, 0.04, 0.04
#: Times the batch, below which a sum cannot be told from the noise of the first losses.
_SUM_TIMES = 1.5
#: Recalibration closes the gap where it closes this share of it.
_CLOSED_SHARE = 0.5
#: Running statistics with momentum 0.1 look back over 10 updates; with fewer than 100 in all, much
#: of what they saw is a younger model.
FEW_UPDATES = 100
_MEAN_LOSS = (
    "a training loss that is a mean over the samples of an update: this one grows with the batch, "
    "as a sum does"
)
_Kind = tuple[str, bool, str, list[Evidence]]


def _pooled_level(levels: Sequence[CurveLevel]) -> CurveLevel:
    """Return the level of several runs that differ in their seed.

    Its error is that from run to run, where there are two or more.
    """
    means = np.array([level_of_run.mean for level_of_run in levels])
    between = float(means.std(ddof=1)) if len(means) > 1 else 0.0
    within = float(np.mean([level_of_run.error for level_of_run in levels]))
    return CurveLevel(
        float(means.mean()),
        max(between, within) / math.sqrt(len(means)),
        sum(level_of_run.points for level_of_run in levels),
    )


def _is_held_out(name: str) -> bool:
    """Tell whether it is of data that the training did not see, as its name says."""
    return any(word in _HELD_OUT for word in words_of_name(name))


@dataclass(frozen=True)
class _LossSpike:
    """Where a loss left its way.

    It was at ``low`` when ``begin`` updates were made, and had climbed to ``high`` by ``update``.
    """

    begin: int
    update: int
    low: float
    high: float


def _find_spike(curve: Curve) -> _LossSpike | None:
    """Find the largest climb of the smoothed loss.

    It must be half of what the loss comes down in all, and far more than its scatter.
    """
    fine = np.isfinite(curve.values)
    if fine.sum() < 20:
        return None
    values, updates = curve.values[fine], curve.updates[fine]
    width = max(5, len(values) // 100)
    smoothed = running_mean(values, width)[width - 1 :]
    lowest = np.minimum.accumulate(smoothed)
    at = int(np.argmax(smoothed - lowest))
    climbed, gained = float(smoothed[at] - lowest[at]), float(smoothed[0] - lowest[-1])
    scatter = float(np.median(np.abs(np.diff(values)))) * math.sqrt(2 / width)
    if climbed <= max(_CLIMB * gained, 8 * scatter, 1e-12):
        return None
    begin = int(np.argmin(smoothed[: at + 1]))
    return _LossSpike(
        int(updates[begin + width - 1]),
        int(updates[at + width - 1]),
        float(lowest[at]),
        float(smoothed[at]),
    )


class LossKind:
    """Kinds of loss that a run has."""

    DEFICIT = "deficit"
    LAG = "statistics_lag"
    GAP = "generalisation_gap"
    INSTABILITY = "instability"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LossVerdict:
    """What kind of loss a run has.

    Attributes:
        run, reference: names; reference "": no run to compare with.
        kind: one of _VERDICT_WORDS of cli/converge/text.py.
        suspected: the evidence allows it, and does not show it.
        message: one sentence with figures.
        needs: what would have to be recorded to tell more.
        samples: that both had trained on where they are compared; None: not compared.
        ratio: batch over the reference's; None: unknown.
    """

    run: str
    reference: str
    kind: str
    suspected: bool
    message: str = field(metadata={"key": "says"})
    evidence: list[Evidence] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    samples: float | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class _Group:
    """Runs of one batch and one set of fixes, which differ in their seed at most."""

    runs: list[TrainingRecord]

    @property
    def name(self) -> str:
        return (
            self.runs[0].name
            if len(self.runs) == 1
            else f"{self.runs[0].name} and {len(self.runs) - 1} more"
        )

    @property
    def batch(self) -> float | None:
        return self.runs[0].batch

    def level(self, name: str, samples: float) -> CurveLevel | None:
        """Return the level of a curve that all runs have."""
        levels = [level_at(run.curves[name], samples) for run in self.runs if name in run.curves]
        known = [level_of_run for level_of_run in levels if level_of_run is not None]
        return _pooled_level(known) if known and len(known) == len(self.runs) else None

    def fall(self) -> float:
        """Return what the training loss came down, mean over runs."""
        falls = []
        for run in self.runs:
            if (
                TRAIN in run.curves
                and (values := run.curves[TRAIN].values[np.isfinite(run.curves[TRAIN].values)]).size
            ):
                falls.append(
                    float(
                        values[: max(1, len(values) // 100)].mean()
                        - values[-max(1, len(values) // 10) :].mean()
                    )
                )
        return max(0.0, float(np.mean(falls))) if falls else 0.0


def grows_with_batch(small: Sequence[TrainingRecord], large: Sequence[TrainingRecord]) -> bool:
    """Tell whether the training loss is larger for a larger batch, as a sum over its samples is.

    Before the first update the model is as good whatever the batch: its loss is then nearer to that
    of the small batch times the ratio of the batches than to that of the small batch.
    """
    starts, batches = [], []
    for runs in (small, large):
        losses = [run.curves[TRAIN].values for run in runs if TRAIN in run.curves]
        first = [float(values[0]) for values in losses if len(values)]
        batch = runs[0].batch
        if not first or not batch or not min(first) > 0:
            return False
        starts.append(float(np.mean(first)))
        batches.append(batch)
    times = batches[1] / batches[0]
    return bool(times >= _SUM_TIMES and starts[1] / starts[0] > math.sqrt(times))


@dataclass(frozen=True)
class _CurveDifference:
    """A measure of two groups at equal samples.

    ``worse``: by how much the larger batch is, and beyond the margin it counts.
    """

    name: str
    reference: CurveLevel
    other: CurveLevel
    worse: float
    margin: float
    floor: float  # the part of the margin that is not the curves' own noise

    @property
    def counts(self) -> bool:
        return self.worse > self.margin

    @property
    def unclear(self) -> bool:
        """Large enough to matter, and the curves are too noisy to tell."""
        return not self.counts and self.worse > self.floor

    def text(self) -> str:
        noise = f"repeated runs may differ by up to {number(self.margin)}"
        return (
            f"{self.name} {number(self.other.mean)} against {number(self.reference.mean)} ({noise})"
        )

    def evidence(self) -> list[Evidence]:
        return [
            Evidence("of_larger_batch", f"{self.name}, larger batch", self.other.mean, "1"),
            Evidence("of_reference", f"{self.name}, reference", self.reference.mean, "1"),
            Evidence("margin", f"{self.name}, margin", self.margin, "1"),
        ]


def group_runs(runs: Sequence[TrainingRecord]) -> list[_Group]:
    """Group runs by batch and fixes, the smallest batch first.

    Of one batch, those without fixes come first.
    """
    members: dict[tuple[float, str], list[TrainingRecord]] = {}
    for run in runs:
        members.setdefault((round(run.batch) if run.batch else math.inf, run.fixes), []).append(run)
    return [_Group(members[key]) for key in sorted(members)]


def classify(runs: Sequence[TrainingRecord]) -> list[LossVerdict]:
    """Return the verdicts of each group of runs, the main one of each first.

    The reference is the smallest batch.

    Args:
        runs: one or more; runs with the same batch and fixes count as seeds of one training.
    """
    reference, *others = group_runs(runs)
    if not others:
        return [_without_comparison(reference)]
    shaky = _unstable(reference)
    if not shaky:
        return [verdict for other in others for verdict in _against(reference, other)]
    first = LossVerdict(
        reference.name,
        "",
        LossKind.INSTABILITY,
        False,
        f"the smallest batch is unstable: {shaky[0]}",
        shaky[1],
    )
    return [first, *(_without_reference(reference, other) for other in others)]


def _compared(
    reference: _Group,
    other: _Group,
    kind: str,
    message: str,
    evidence: Sequence[Evidence] = (),
    needs: Sequence[str] = (),
    samples: float | None = None,
    suspected: bool = False,
) -> LossVerdict:
    """Return a verdict on a run beside its reference."""
    ratio = other.batch / reference.batch if other.batch and reference.batch else None
    return LossVerdict(
        other.name,
        reference.name,
        kind,
        suspected,
        message,
        list(evidence),
        list(needs),
        samples,
        ratio,
    )


def _without_reference(reference: _Group, other: _Group) -> LossVerdict:
    """Return what can be said of a run whose reference is unstable."""
    if broken := _unstable(other):
        return _compared(reference, other, LossKind.INSTABILITY, *broken)
    message = f"{reference.name} is unstable, so there is nothing to compare with"
    needs = ["a stable run with a smaller batch"]
    return _compared(reference, other, LossKind.UNKNOWN, message, needs=needs)


def _without_comparison(group: _Group) -> LossVerdict:
    needs = [
        "a run of the same training with a smaller batch for the same number of samples, to tell "
        "a deficit from a generalization gap"
    ]
    broken = _unstable(group)
    if broken:
        return LossVerdict(group.name, "", LossKind.INSTABILITY, False, broken[0], broken[1], needs)
    message = "the loss is stable; telling whether the batch size costs accuracy takes a second run"
    return LossVerdict(group.name, "", LossKind.UNKNOWN, False, message, [], needs)


def _against(reference: _Group, other: _Group) -> list[LossVerdict]:
    """Return the kinds of loss of a run beside a stable one, the main one first."""
    if broken := _unstable(other):
        return [_compared(reference, other, LossKind.INSTABILITY, *broken)]
    samples, needs = _common(reference, other)
    if not samples:
        message = "one of the runs recorded no samples"
        return [_compared(reference, other, LossKind.UNKNOWN, message, needs=needs)]
    summed = grows_with_batch(reference.runs, other.runs)
    train = None if summed else _difference(TRAIN, reference, other, samples)
    held = _held_out(reference, other, samples, losses_too=not summed)
    if summed:
        needs.append(_MEAN_LOSS)
    if summed and held is None:
        message = "the training losses of the two batches cannot be compared"
        return [_compared(reference, other, LossKind.UNKNOWN, message, needs=needs)]
    lag = _lag(reference, other, samples, held)
    return [
        _compared(reference, other, kind, message, evidence, needs, samples, suspected)
        for kind, suspected, message, evidence in _kinds(other, train, held, lag)
    ]


def _kinds(
    other: _Group, train: _CurveDifference | None, held: _CurveDifference | None, lag: float | None
) -> list[_Kind]:
    """Return every kind that the differences show, the main one first."""
    if train is None and held is None:
        why = "neither a training nor an evaluation loss was recorded in both runs"
        return [(LossKind.UNKNOWN, False, why, [])]
    kinds: list[_Kind] = []
    if lag is not None and held is not None and lag >= _CLOSED_SHARE:
        kinds.append(_closed_by_recalibration(held, lag))
    if train is not None and train.counts:
        why = f"{train.text()} after the same number of samples"
        kinds.append((LossKind.DEFICIT, False, why, train.evidence()))
    elif held is not None and held.counts and not kinds:
        proof = [*(train.evidence() if train else []), *held.evidence()]
        levels = f"{train.text()}, but {held.text()}" if train else held.text()
        if lag is None and _may_lag(other):
            updates = count(other.runs[0].updates)
            why = f"{levels}; {updates} updates are few for running statistics to settle"
            kinds.append((LossKind.LAG, True, why, proof))
        kinds.append((LossKind.GAP, bool(kinds) or train is None, levels, proof))
    return kinds or [_no_difference([level for level in (train, held) if level is not None])]


def _closed_by_recalibration(held: _CurveDifference, lag: float) -> _Kind:
    """Return the lag of running statistics, of which recalibration closes this share."""
    why = (
        f"recalibrating the statistics closes {share(min(lag, 1.0))} of the gap in "
        f"{held.name}: {held.text()}"
    )
    closed = Evidence(
        "recalibration_share", "share of the gap that recalibration closes", lag, SHARE
    )
    return LossKind.LAG, False, why, [*held.evidence(), closed]


def _no_difference(levels: list[_CurveDifference]) -> _Kind:
    """Return that nothing differs for certain; unknown where the noise may hide it."""
    why = "; ".join(level.text() for level in levels)
    evidence = [fact for level in levels for fact in level.evidence()]
    if any(level.unclear for level in levels):
        return (
            LossKind.UNKNOWN,
            False,
            f"{why}; too noisy to tell: record more seeds or evaluations",
            evidence,
        )
    return LossKind.HEALTHY, False, why, evidence


def _may_lag(group: _Group) -> bool:
    norms = group.runs[0].setup.get("norms")
    layers = (
        sum(n for kind, n in norms.items() if "BatchNorm" in kind and isinstance(n, int))
        if isinstance(norms, dict)
        else 0
    )
    return layers > 0 and group.runs[0].updates < FEW_UPDATES


def _common(reference: _Group, other: _Group) -> tuple[float, list[str]]:
    """Return samples to compare at, and what makes the comparison less than fair."""
    ends = [min(run.samples for run in group.runs) for group in (reference, other)]
    samples = min(ends)
    needs = []
    if samples < 0.9 * max(ends):
        longer = reference.name if ends[0] > ends[1] else other.name
        needs.append(
            f"runs with the same number of samples: {longer} was compared before its end, where "
            f"its learning rate may still be high"
        )
    if not any(_EVAL in group.runs[0].curves or _measures(group) for group in (reference, other)):
        needs.append(
            "an evaluation loss, or an accuracy given to feedline.metric, to see a generalization "
            "gap"
        )
    return samples, needs


def _measures(group: _Group) -> list[str]:
    """Return names of accuracies on held-out data."""
    return [
        name
        for name in group.runs[0].curves
        if is_higher_better(name)
        and not name.endswith(_RECALIBRATED)
        and "train" not in words_of_name(name)
    ]


def _held_out(
    reference: _Group, other: _Group, samples: float, losses_too: bool = True
) -> _CurveDifference | None:
    """Return the measure on held-out data.

    It is an accuracy before a loss, which overfitting raises without harm.

    Args:
        reference: the smaller batch.
        other: the larger one.
        samples: after which they are compared.
        losses_too: also losses; without, they may be sums over a batch, as that of the training is.
    """
    losses = [
        name
        for name in reference.runs[0].curves
        if _is_held_out(name) and not is_higher_better(name) and _RECALIBRATED not in name
    ]
    for name in [*_measures(reference), *([_EVAL, *losses] if losses_too else [])]:
        if (difference := _difference(name, reference, other, samples)) is not None:
            return difference
    return None


def _difference(
    name: str, reference: _Group, other: _Group, samples: float
) -> _CurveDifference | None:
    before, after = reference.level(name, samples), other.level(name, samples)
    if before is None or after is None:
        return None
    rising = is_higher_better(name)
    noise = _NOISE_ERRORS * math.hypot(before.error, after.error)
    if rising:
        floor = _OF_ACCURACY * (100.0 if max(before.mean, after.mean) > 1.5 else 1.0)
    else:
        floor = max(_OF_LOSS * abs(before.mean), _OF_FALL * reference.fall())
    floor /= math.sqrt(min(len(reference.runs), len(other.runs)))
    worse = before.mean - after.mean if rising else after.mean - before.mean
    return _CurveDifference(name, before, after, worse, max(noise, floor), floor)


def _lag(
    reference: _Group, other: _Group, samples: float, held: _CurveDifference | None
) -> float | None:
    """Return the share of the held-out gap that recalibrating batch norm closes.

    1: all of it, below 0: it grows. None: no gap, or not tried.
    """
    if held is None or not held.counts:
        return None
    again = other.level(held.name + _RECALIBRATED, samples)
    name = held.name
    if again is None and (again := other.level(_EVAL + _RECALIBRATED, samples)) is not None:
        difference = _difference(_EVAL, reference, other, samples)
        if difference is None or difference.worse <= 0:
            return None
        held, name = difference, _EVAL
    if again is None:
        return None
    closed = again.mean - held.other.mean
    return (closed if is_higher_better(name) else -closed) / held.worse


def _unstable(group: _Group) -> tuple[str, list[Evidence]] | None:
    """Return how the loss of a run became unstable, with evidence; None: it did not."""
    for run in group.runs:
        curve = run.curves.get(TRAIN)
        if curve is None or not len(curve.values):
            continue
        bad = np.flatnonzero(~np.isfinite(curve.values))
        if len(bad):
            at = int(curve.updates[bad[0]])
            message = (
                f"the loss of {run.name} was NaN or infinite {counted(len(bad), 'time')}, "
                f"first after {count(at)} updates"
            )
            return message, [
                Evidence("updates_before", "updates before", at, "updates"),
                Evidence("updates_before_climb", "updates before it began", at, "updates"),
                Evidence("not_finite", "values not finite", len(bad), "values"),
            ]
        out = _find_spike(curve)
        if out is not None:
            message = (
                f"the loss of {run.name} climbed from {number(out.low)} to "
                f"{number(out.high)} by update {count(out.update)}"
            )
            facts = [
                Evidence("loss_before", "loss before", out.low, "1"),
                Evidence("highest_loss", "loss at its height", out.high, "1"),
            ]
            began = Evidence(
                "updates_before_climb", "updates before it began", out.begin, "updates"
            )
            return message, [
                *facts,
                Evidence("updates_before", "updates before", out.update, "updates"),
                began,
            ]
    return None
