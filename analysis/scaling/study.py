"""Everything that ``feedline scale`` says, as plain data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from feedline.analysis.scaling.efficiency import STEPS, Point, Row, alone, rows, scaling_kind, sound
from feedline.analysis.scaling.predict import Basis, Prediction, fit, held_out, predict
from feedline.analysis.scaling.scaling_conclusion import Shape, conclude, counted, disagreement, flags, shape_of


@dataclass(frozen=True)
class Noise:
    """What the user knows of the training's gradient noise.

    Attributes:
        critical_batch: Bcrit, samples: the gradient noise scale.
        fewest_steps: Smin, optimizer steps of an endlessly large batch; None: only ratios can be given.
    """

    critical_batch: float
    fewest_steps: float | None = None


def _steps_factor(noise: Noise, ranks: int, batch: float) -> float:
    """S / Smin = 1 + Bcrit / (N b), from (S / Smin - 1)(E / Emin - 1) = 1 with E = S N b and Bcrit = Emin / Smin: McCandlish, Kaplan,
    Amodei and others, An Empirical Model of Large-Batch Training, 2018 (arXiv:1812.06162), section 2."""
    return 1 + noise.critical_batch / (ranks * batch)


def time_to_accuracy(noise: Noise, ranks: int, batch: float, step_s: float) -> float:
    """T(N) = Smin (1 + Bcrit / (N b)) t_step(N).

    Args:
        batch: b, samples of one rank in one step.

    Returns:
        seconds; in units of Smin steps (as if Smin were 1) where Smin is not known.
    """
    return (noise.fewest_steps or 1.0) * _steps_factor(noise, ranks, batch) * step_s


_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class _Law:
    """A fitted law, for those who want to compare.

    Attributes:
        samples_per_s: predicted number of ranks -> samples/s.
        held_out_error: of predicting the largest measured number of ranks from the smaller ones, per doubling; None: too few points.
    """

    name: str
    parameters: dict[str, float]
    samples_per_s: dict[int, float]
    held_out_error: float | None


@dataclass(frozen=True)
class _Time:
    """Time to accuracy. ``seconds`` None: Smin is not known. ``ratio``: over that of the fewest ranks."""

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
        refused: why there is neither efficiency nor prediction, of together.py; empty: there are.
        unit: of every ``samples_per_s``: samples/s, or steps/s where samples were not seen.
    """

    kind: str
    rows: list[Row]
    flags: list[str]
    shape: Shape | None
    predictions: list[Prediction]
    laws: list[_Law]
    left_out: list[str]
    times: list[_Time]
    notes: list[str]
    conclusion: str
    contradictions: list[str]
    late: str
    unit: str
    refused: str = ""
    schema_version: int = _SCHEMA_VERSION


def study(
    points: Sequence[Point],
    targets: Sequence[int] = (),
    basis: Basis | None = None,
    noise: Noise | None = None,
    late: str = "",
    refused: str = "",
) -> Study:
    """Compare, name the shape, predict; where that is refused, only list what was measured.

    Args:
        points: of one number of ranks each.
        targets: numbers of ranks to predict.
        basis: what recorded runs tell of a step; its points and kind are filled in here.
        noise: for time to accuracy, which also needs the batch of a rank.
        late: see ``late.late_of``.
        refused: see ``together.refusal``.
    """
    ordered = sorted(points, key=lambda point: point.ranks)
    if refused:
        return _refused(ordered, targets, refused)
    compared, kind = rows(ordered), scaling_kind(ordered)
    usable = sound(compared)
    known = replace(basis or Basis((), kind), points=usable, kind=kind)
    predictions = [predict(known, ranks) for ranks in targets]
    fitted, left_out = fit(known)
    reached = [one.ranks for one in predictions if one.samples_per_s is not None]
    laws = [_Law(law.name, law.parameters, {n: n / law.rank_s(n) for n in reached}, held_out(known, law.name)) for law in fitted]
    times = list(_times(ordered, predictions, kind, noise)) if noise else []
    notes = [f"{counted(point.ranks)}: {note}" for point in ordered for note in point.notes]
    unit = ordered[0].unit
    if unit == STEPS:
        notes.insert(
            0, "samples were not recorded: steps/s are compared, and overstate the throughput if the batch per rank shrinks with more ranks"
        )
    if noise and not times:
        why = "samples were not recorded" if unit == STEPS else "give the batch per rank with --batch-size"
        notes.append(f"time to accuracy is unknown: {why}")
    contradictions = disagreement(compared[-1], {law.name: law.samples_per_s for law in laws})
    return Study(
        kind,
        compared,
        flags(compared),
        shape_of(usable, kind),
        predictions,
        laws,
        left_out,
        times,
        notes,
        conclude(compared, unit, predictions, late, contradictions),
        contradictions,
        late,
        unit,
    )


def _refused(points: Sequence[Point], targets: Sequence[int], why: str) -> Study:
    none = [Prediction(ranks, None, None, None, "", why) for ranks in targets]
    notes = [f"{counted(point.ranks)}: {note}" for point in points for note in point.notes]
    return Study(scaling_kind(points), alone(points), [], None, none, [], [], [], notes, why, [], "", points[0].unit, why)


def _times(points: Sequence[Point], predictions: Sequence[Prediction], kind: str, noise: Noise) -> Iterator[_Time]:
    """Measured, then predicted ones. A predicted batch is that of the kind of scaling."""
    base = points[0]
    if base.unit == STEPS or base.batch is None or any(point.batch is None for point in points):
        return
    whole = base.batch * base.ranks
    places = [(point.ranks, point.samples_per_s, float(point.batch or 0), False) for point in points]
    places += [(one.ranks, one.samples_per_s, whole / one.ranks if kind == "strong" else base.batch, True)
               for one in predictions if one.samples_per_s is not None]  # fmt: skip
    first = time_to_accuracy(noise, base.ranks, base.batch, whole / base.samples_per_s)
    for ranks, rate, batch, predicted in places:
        spent = time_to_accuracy(noise, ranks, batch, ranks * batch / rate)
        yield _Time(ranks, predicted, _steps_factor(noise, ranks, batch), spent if noise.fewest_steps else None, spent / first)
