"""Everything that ``feedline scale`` says, as plain data, with its conclusion in sentences."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feedline.analysis.scaling.efficiency import SAME_BATCH, Point, ScalingRow, Unit, compare_points
from feedline.analysis.scaling.more_ranks import (
    ScalingBasis,
    ThroughputPrediction,
    fit_laws,
    held_out,
    predict,
)
from feedline.analysis.text.formatting import number, share
from feedline.analysis.text.formatting import rate as format_rate

# throughputs that differ by less are alike, where no error of the measurement is known
_SAME = 0.03
_MIN_MARGINAL = 0.5  # marginal efficiency below which most of an added rank is lost
#: Shape of the growth of a sample's time -> what it says of the cause.
_CAUSE_OF_SHAPE = {
    "noise": ", within the noise of the measurement",
    "unclear": ": {} fit equally well, so the cause is unclear",
    "once": ", all of it where the second rank joins: that points to what exchanging gradients "
    "costs on any number of ranks",
    "early": ", all of it up to {} ranks: exchanging gradients may cost that on any number of ranks, "
    "or what these ranks share (CPUs, memory, PCIe of a host)",
    "linear": ", linearly: that points to something that all ranks share (CPUs, memory, PCIe, "
    "storage of the host) or to latency; a ring "
    "all-reduce limited by bandwidth would level off",
    "saturating": ", levelling off as 2(n-1)/n: that points to the bandwidth of a ring all-reduce",
}
#: Curve -> what it is called beside another one that fits equally well.
_NAME_OF_CURVE = {
    "linear": "a straight line",
    "saturating": "the curve of a ring all-reduce",
    "once": "a jump at the second rank",
}
#: Growth of a sample's time below which there is nothing to explain.
_FLAT = 0.03
#: The best curve must leave less than this part of the second best's squared error.
_MAX_MISFIT_RATIO = 0.5
_CURVES: dict[str, Callable[[float], float]] = {
    "linear": lambda n: n - 1,
    "saturating": lambda n: 2 * (n - 1) / n,
    "once": lambda n: float(n > 1),
}
_SLOW_BASE = "the smallest run, which they are read from, is flagged as too slow"
_STUDY_SCHEMA = 1


def _conclude(
    rows: Sequence[ScalingRow],
    unit: str,
    predictions: Sequence[ThroughputPrediction],
    late: str,
    contradictions: Sequence[str],
    failed: int | None = None,
) -> str:
    """Say how much more the most ranks give, and where the fastest is.

    What stands in the way, and what is predicted, follows.

    Args:
        rows: what was measured.
        unit: of throughputs.
        predictions: for more ranks.
        late: the rank that the others wait for; empty: none.
        contradictions: of ``_disagreement``: then nothing is predicted here.
        failed: as of ``study``.
    """
    return " ".join(
        f"{sentence[:1].upper()}{sentence[1:]}."
        for sentence in (
            *_sentences(rows, unit, late, failed),
            *_predicted(rows[-1], unit, predictions, contradictions),
        )
    )


def _disagreement(measured: ScalingRow, rates: dict[str, dict[int, float]]) -> list[str]:
    """Name the predicted numbers of ranks for which laws contradict each other.

    A sentence for each for which one law says more than was measured and another one less.

    Args:
        measured: the most ranks.
        rates: law -> predicted number of ranks -> samples/s; the most trusted law first.
    """
    most, sentences = measured.point, []
    for ranks in sorted({ranks for of in rates.values() for ranks in of if ranks > most.ranks}):
        up = [
            f"{law} rises to {format_rate(of[ranks])}"
            for law, of in rates.items()
            if of[ranks] > most.samples_per_s * (1 + _SAME)
        ]
        down = [
            f"{law} falls to {format_rate(of[ranks])}"
            for law, of in rates.items()
            if of[ranks] < most.samples_per_s * (1 - _SAME)
        ]
        if up and down:
            now = f"{format_rate(most.samples_per_s)} {most.unit} with {counted(most.ranks)}"
            sentences.append(
                f"predictions for {counted(ranks)} disagree: from {now}, {', '.join(up)}, but "
                f"{', '.join(down)}; "
                "measure before relying on either"
            )
    return sentences


def _sentences(
    rows: Sequence[ScalingRow], unit: str, late: str, failed: int | None
) -> Iterator[str]:
    base = rows[0]
    flagged = [row for row in rows if row.flagged]
    if len(rows) < 2:
        ranks, rate = base.point.ranks, f"{format_rate(base.point.samples_per_s)} {unit}"
        more = f"measure more with `feedline scale --ranks {ranks},{2 * ranks} -- SCRIPT`"
        yield f"{counted(ranks)}: {rate}" + ("" if failed else f"; to compare it, {more}")
    elif flagged:
        ranks, times = base.point.ranks, flagged[0].point.samples_per_s / base.point.samples_per_s
        yield (
            f"measure {counted(ranks)} again (`feedline scale --ranks {ranks} -- SCRIPT`): "
            f"{counted(flagged[0].point.ranks)} cannot be {number(times)} times as fast as {ranks}"
        )
    else:
        yield from _gain(rows, unit)
    if failed:
        yield f"with {counted(failed)}, the training failed"
    if late:
        yield late
    if any(row.point.disturbed for row in rows):
        yield (
            "ranks waited for CPUs during the measurement (see Notes): repeat it on an idle machine"
        )


def _predicted(
    last: ScalingRow,
    unit: str,
    predictions: Sequence[ThroughputPrediction],
    contradictions: Sequence[str],
) -> Iterator[str]:
    yield from contradictions[:1]
    for prediction in predictions[:1] if not contradictions else ():
        rate, low, high = prediction.samples_per_s, prediction.low, prediction.high
        if rate is not None and low is not None and high is not None:
            yield (
                f"prediction for {counted(prediction.ranks)}: {format_rate(rate)} {unit} "
                f"({format_rate(low)} to {format_rate(high)}), "
                f"{number(rate / last.point.samples_per_s)} times the rate of "
                f"{counted(last.point.ranks)}"
            )


def _gain(rows: Sequence[ScalingRow], unit: str) -> Iterator[str]:
    base, last = rows[0], rows[-1]
    times = last.point.samples_per_s / base.point.samples_per_s
    yield (
        f"{counted(last.point.ranks)} reach {number(times)} times the {unit} of "
        f"{counted(base.point.ranks)}: "
        f"{share(last.efficiency)} scaling efficiency"
    )
    fastest = max(rows, key=lambda row: row.point.samples_per_s)
    before = rows[-2]
    noise = max(_SAME, _error_of_ratio(fastest.point, last.point))
    if fastest.point.samples_per_s > last.point.samples_per_s * (1 + noise):
        yield f"use {counted(fastest.point.ranks)}: more ranks are slower"
    elif last.marginal is not None and last.marginal + _marginal_error(rows) < _MIN_MARGINAL:
        added = last.point.ranks - before.point.ranks
        yield (
            f"each of the {added:,} ranks added to {before.point.ranks:,} contributes "
            f"{share(max(last.marginal, 0.0))} of a single rank"
        )


def _error_of_ratio(point: Point, other: Point) -> float:
    """Return the relative error of the ratio of two rates; 0 where none is known."""
    return math.hypot(point.error or 0.0, other.error or 0.0)


def _marginal_error(rows: Sequence[ScalingRow]) -> float:
    """Return the error of the last marginal efficiency; 0 where none is known."""
    base, before, last = rows[0].point, rows[-2].point, rows[-1].point
    rates = (before.samples_per_s * (before.error or 0), last.samples_per_s * (last.error or 0))
    added = (last.ranks - before.ranks) * base.samples_per_s / base.ranks
    return math.hypot(*rates) / added


def _flags(rows: Sequence[ScalingRow]) -> list[str]:
    """Say why measured points cannot be taken at their word."""
    base = counted(rows[0].point.ranks)
    return [
        f"{counted(row.point.ranks)} reach {share(row.efficiency)} efficiency, so the baseline "
        f"measurement is too slow: measure {base} "
        "again. Until then all efficiencies are too high, and predictions ignore the baseline"
        for row in rows
        if row.flagged
    ]


def _grows(shape: str, points: Sequence[Point], growth: float, alike: Sequence[str] = ()) -> str:
    """Say how the time of a sample grows, and what causes that.

    Args:
        shape: as ``_ScalingShape.name``, or ``noise``.
        points: ascending in ranks.
        growth: as ``_ScalingShape.growth``.
        alike: the curves that fit equally well, if the shape is ``unclear``.
    """
    of = points[0].unit.removesuffix("s/s")
    if shape == "flat":
        return f"the time per {of} grows by only {share(max(growth, 0.0))}: nothing to explain"
    between = f"from {points[0].ranks} to {points[-1].ranks} ranks"
    if shape == "once" and points[1].ranks > 2:
        cause = _CAUSE_OF_SHAPE["early"].format(points[1].ranks)
    else:
        curves = " and ".join(_NAME_OF_CURVE[name] for name in _CURVES if name in alike)
        cause = _CAUSE_OF_SHAPE[shape].format(curves)
    return f"{between}, the time per {of} on a rank grows by {share(growth)}{cause}"


def counted(count: int) -> str:
    return f"{count:,} rank{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class _ScalingShape:
    """The verdict.

    Attributes:
        name: ``linear``, ``saturating``, ``once``, ``flat``, or ``unclear``.
        growth: time of a sample and rank with the most ranks over that with the fewest, minus 1.
        misfit: of each curve: root mean square error over the mean time.
    """

    name: str
    growth: float
    misfit: dict[str, float]
    message: str = field(metadata={"key": "says"})


def _shape_of(points: Sequence[Point], kind: str) -> _ScalingShape | None:
    """Tell which curve the time of a sample and rank follows.

    None with fewer than three points, or where batches per rank differ.

    In strong scaling the transfer is divided by ever smaller batches, so that the bandwidth's part
    grows with the ranks, too.

    At a fixed batch per rank, a ring all-reduce adds 2(n-1)/n S/B of transfer, which is at 7/8 of
    its limit with eight ranks, and 2(n-1) alpha of latency, which grows with every rank (Thakur,
    Rabenseifner and Gropp, IJHPCA 19(1), 2005). So does what all ranks of a host share: its CPUs,
    memory, PCIe, storage. What a training does only where there is another rank, whatever their
    number, is added once: copying gradients into buckets, starting collectives.

    Args:
        points: ascending in ranks, without a bad baseline.
        kind: see ``efficiency.scaling_kind``; ``unknown`` is taken as weak.
    """
    if len(points) < 3 or kind not in ("weak", "unknown"):
        return None
    ranks = np.array([point.ranks for point in points], float)
    times = np.array([point.rank_s for point in points])
    growth = float(times[-1] / times[0] - 1)
    misfit = {
        name: _misfit(values, times)
        for name, curve in _CURVES.items()
        # of several ranks only, what is added once is the same for all
        if np.ptp(values := np.array([curve(n) for n in ranks]))
    }
    if growth < _FLAT:
        return _ScalingShape("flat", growth, misfit, _grows("flat", points, growth))
    if growth < max(point.error or 0.0 for point in points):
        return _ScalingShape("unclear", growth, misfit, _grows("noise", points, growth))
    best, other = sorted(misfit, key=lambda name: misfit[name])[:2]
    name = "unclear" if misfit[best] ** 2 > _MAX_MISFIT_RATIO * misfit[other] ** 2 else best
    return _ScalingShape(name, growth, misfit, _grows(name, points, growth, (best, other)))


def _misfit(curve: np.ndarray, times: np.ndarray) -> float:
    """Return the root mean square error of ``a + b curve`` with b >= 0, over the mean time."""
    off, spread = curve - curve.mean(), times - times.mean()
    slope = max(0.0, float(off @ spread) / float(off @ off))
    return float(np.sqrt(np.mean((spread - slope * off) ** 2)) / times.mean())


@dataclass(frozen=True)
class Noise:
    """What the user knows of the training's gradient noise.

    Attributes:
        critical_batch: Bcrit, samples: the gradient noise scale.
        fewest_steps: Smin, optimizer steps of an endlessly large batch; None: only ratios can be
            given.
    """

    critical_batch: float
    fewest_steps: float | None = None


def _steps_factor(noise: Noise, ranks: int, batch: float) -> float:
    """Return S / Smin = 1 + Bcrit / (N b).

    It follows from (S / Smin - 1)(E / Emin - 1) = 1 with E = S N b and Bcrit = Emin / Smin:
    McCandlish, Kaplan, Amodei and others, An Empirical Model of Large-Batch Training, 2018
    (arXiv:1812.06162), section 2.
    """
    return 1 + noise.critical_batch / (ranks * batch)


def _time_to_accuracy(noise: Noise, ranks: int, batch: float, step_s: float) -> float:
    """Return T(N) = Smin (1 + Bcrit / (N b)) t_step(N).

    Args:
        noise: what is known of the gradient noise.
        ranks: N.
        batch: b, samples of one rank in one step.
        step_s: t_step(N), seconds.

    Returns:
        seconds; in units of Smin steps (as if Smin were 1) where Smin is not known.
    """
    return (noise.fewest_steps or 1.0) * _steps_factor(noise, ranks, batch) * step_s


@dataclass(frozen=True)
class _Law:
    """A fitted law, for those who want to compare.

    Attributes:
        samples_per_s: predicted number of ranks -> samples/s.
        held_out_error: of predicting the largest measured number of ranks from the smaller ones,
            per doubling; None: too few points.
    """

    name: str
    parameters: dict[str, float]
    samples_per_s: dict[int, float]
    held_out_error: float | None


@dataclass(frozen=True)
class _Time:
    """Time to accuracy.

    ``seconds`` None: Smin is not known. ``ratio``: over that of the fewest ranks.
    """

    ranks: int
    predicted: bool
    steps_factor: float
    seconds: float | None
    ratio: float


@dataclass(frozen=True)
class Study:
    """The analysis.

    Attributes:
        kind: weak, strong, mixed or unknown; weak is taken for granted where steps are counted.
        flags: why measured points cannot be taken at their word.
        left_out: laws that could not be fitted, and why.
        conclusion: what it comes to, in a few sentences.
        contradictions: where one law rises and another one falls.
        late: the rank that holds the others up; empty: none does, or it is unknown.
        refused: why there is neither efficiency nor prediction, of launch_points.py; empty: there are.
        unit: of every ``samples_per_s``: samples/s, or steps/s where samples were not seen.
    """

    kind: str
    rows: list[ScalingRow]
    flags: list[str]
    shape: _ScalingShape | None
    predictions: list[ThroughputPrediction]
    laws: list[_Law]
    left_out: list[str]
    times: list[_Time]
    notes: list[str]
    conclusion: str
    contradictions: list[str]
    late: str
    unit: str
    refused: str = ""
    schema_version: int = _STUDY_SCHEMA


def study(
    points: Sequence[Point],
    targets: Sequence[int] = (),
    basis: ScalingBasis | None = None,
    noise: Noise | None = None,
    late: str = "",
    refused: str = "",
    failed: int | None = None,
) -> Study:
    """Compare, name the shape, predict; where that is refused, only list what was measured.

    Args:
        points: of one number of ranks each.
        targets: numbers of ranks to predict.
        basis: what recorded runs tell of a step; its points and kind are filled in here.
        noise: for time to accuracy, which also needs the batch of a rank.
        late: see ``explain/late_launch.py``.
        refused: see ``together.why_incomparable``.
        failed: number of ranks with which the training failed; None: it did not.
    """
    ordered = sorted(points, key=lambda point: point.ranks)
    if refused:
        return _refused(ordered, targets, refused, failed)
    compared, kind = compare_points(ordered), _scaling_kind(ordered)
    usable = _usable_points(compared)
    known = replace(basis or ScalingBasis((), kind), points=usable, kind=kind)
    if known.anatomy is not None and len(usable) < len(ordered):
        known = replace(known, anatomy=None, link=None, why=_SLOW_BASE)
    predictions = [predict(known, ranks) for ranks in targets]
    laws, left_out = _laws(known, predictions)
    times = list(_times(ordered, predictions, kind, noise)) if noise else []
    notes = _notes(ordered, times_missing=noise is not None and not times)
    unit = ordered[0].unit
    contradictions = _disagreement(compared[-1], {law.name: law.samples_per_s for law in laws})
    return Study(
        kind,
        compared,
        _flags(compared),
        _shape_of(usable, kind),
        predictions,
        laws,
        left_out,
        times,
        notes,
        _conclude(compared, unit, predictions, late, contradictions, failed),
        contradictions,
        late,
        unit,
    )


def _laws(
    known: ScalingBasis, predictions: Sequence[ThroughputPrediction]
) -> tuple[list[_Law], list[str]]:
    """Return the laws that fit, with what they say of the predicted numbers of ranks.

    With them those that were left out.
    """
    fitted, left_out = fit_laws(known)
    reached = [
        prediction.ranks for prediction in predictions if prediction.samples_per_s is not None
    ]
    laws = [
        _Law(
            law.name,
            law.parameters,
            {n: n / law.rank_s(n) for n in reached},
            held_out(known, law.name),
        )
        for law in fitted
    ]
    return laws, left_out


def _notes(points: Sequence[Point], times_missing: bool) -> list[str]:
    """Return the points' notes, and what the study could not do.

    Args:
        points: at least one.
        times_missing: no time to accuracy could be told.
    """
    notes = [f"{counted(point.ranks)}: {note}" for point in points for note in point.notes]
    steps_only = points[0].unit == Unit.STEPS
    if steps_only:
        notes.insert(
            0,
            "samples were not recorded: steps/s are compared, and overstate the throughput if the "
            "batch per rank shrinks with more ranks",
        )
    if times_missing:
        why = (
            "samples were not recorded"
            if steps_only
            else "give the batch per rank with --batch-size"
        )
        notes.append(f"time to accuracy is unknown: {why}")
    return notes


def _refused(
    points: Sequence[Point], targets: Sequence[int], why: str, failed: int | None
) -> Study:
    none = [ThroughputPrediction(ranks, None, None, None, "", why) for ranks in targets]
    notes = [f"{counted(point.ranks)}: {note}" for point in points for note in point.notes]
    return Study(
        _scaling_kind(points),
        _rows_without_base(points),
        [],
        None,
        none,
        [],
        [],
        [],
        notes,
        f"{why.rstrip('.')}. With {counted(failed)}, the training failed." if failed else why,
        [],
        "",
        points[0].unit,
        why,
    )


def _times(
    points: Sequence[Point], predictions: Sequence[ThroughputPrediction], kind: str, noise: Noise
) -> Iterator[_Time]:
    """Yield times of measured, then of predicted numbers of ranks.

    A predicted batch is that of the kind of scaling.
    """
    base = points[0]
    if (
        base.unit == Unit.STEPS
        or base.batch is None
        or any(point.batch is None for point in points)
    ):
        return
    whole = base.batch * base.ranks
    places = [
        (point.ranks, point.samples_per_s, float(point.batch or 0), False) for point in points
    ]
    places += [(prediction.ranks, prediction.samples_per_s, whole / prediction.ranks if kind == "strong" else base.batch, True)
               for prediction in predictions if prediction.samples_per_s is not None]  # fmt: skip
    first = _time_to_accuracy(noise, base.ranks, base.batch, whole / base.samples_per_s)
    for ranks, rate, batch, predicted in places:
        spent = _time_to_accuracy(noise, ranks, batch, ranks * batch / rate)
        yield _Time(
            ranks,
            predicted,
            _steps_factor(noise, ranks, batch),
            spent if noise.fewest_steps else None,
            spent / first,
        )


def _rows_without_base(points: Sequence[Point]) -> list[ScalingRow]:
    """Make a row of every point for itself."""
    return [ScalingRow(point, None, None, None, False) for point in points]


def _usable_points(measured: Sequence[ScalingRow]) -> list[Point]:
    """Return the points that a fit may use.

    That is without the base, where another point flags it as bad.
    """
    flagged = any(row.flagged for row in measured)
    return [row.point for row in measured[1 if flagged else 0 :]]


def _scaling_kind(points: Sequence[Point]) -> str:
    """Tell ``weak``, ``strong``, ``mixed`` or ``unknown`` scaling.

    Weak is one batch per rank throughout, strong one batch of all ranks together.
    """
    batches = [point.batch for point in points if point.batch]
    if len(batches) < len(points):
        return "unknown"
    whole = [point.batch * point.ranks for point in points if point.batch]
    for kind, sizes in (("weak", batches), ("strong", whole)):
        if max(sizes) <= min(sizes) * (1 + SAME_BATCH):
            return kind
    return "mixed"
