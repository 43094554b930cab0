"""Predicts throughput for numbers of ranks that were not run, with an interval, or refuses with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.analysis.formatting import share
from feedline.analysis.scaling import models
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.models import Model
from feedline.analysis.scaling.step_profile import Ring, StepProfile

#: How far beyond the most ranks measured a prediction goes. From 1 and 2 to 8 both laws missed the source table by 46 %.
_REACH = 4
#: Between measured points, or close above them, an interval is at least this part of that of a doubling.
_NEAR = 0.5


@dataclass(frozen=True)
class Basis:
    """What predictions are made from.

    Attributes:
        points: ascending in ranks, without a bad baseline.
        kind: see ``efficiency.scaling_kind``.
        anatomy, link: None: collectives were not recorded; ``why`` says what is missing.
    """

    points: Sequence[Point]
    kind: str
    anatomy: StepProfile | None = None
    link: Ring | None = None
    why: str = "it needs runs recorded by `feedline run`, because throughputs say nothing about collectives"


@dataclass(frozen=True)
class Prediction:
    """samples/s of all ranks together with an interval of about 80 %; all None where it is refused, and ``why`` says why."""

    ranks: int
    samples_per_s: float | None
    low: float | None
    high: float | None
    model: str
    why: str = ""


def fit(basis: Basis) -> tuple[list[Model], list[str]]:
    """All laws that these measurements allow, the most trusted first, and why the others are left out."""
    if len(basis.points) < 2:
        return [], ["scaling laws need the throughput at two or more rank counts"]
    found, refused = [], []
    last = basis.points[-1]
    if basis.anatomy is None or basis.link is None:
        refused.append(f"no replay of gradient buckets: {basis.why}")
    elif basis.kind != "weak" or last.batch is None:
        refused.append("no replay of gradient buckets: it needs a constant batch per rank, and here it changes with the number of ranks")
    else:
        replayed = models.bucket_replay(basis.anatomy, basis.link, last)
        unexplained = replayed.parameters["constant_s"] / (last.rank_s * last.batch)
        if abs(unexplained) <= models.UNEXPLAINED:
            found.append(replayed)
        else:
            refused.append(f"bucket replay: leaves {share(abs(unexplained))} of the step of {last.ranks} ranks unexplained")
        if (normed := models.p_norm(basis.anatomy, basis.link, last)) is not None:
            found.append(normed)
        else:
            refused.append(f"p-norm: no exponent explains the step of {last.ranks} ranks")
        found.append(models.additive(basis.anatomy, basis.link, last.batch))
    found.insert(len(found) - 1 if found else 0, models.usl(basis.points))
    return found, refused


def predict(basis: Basis, ranks: int) -> Prediction:
    """Predict with the most trusted law.

    The interval joins, as the root of the sum of squares: the error that the law had on other trainings, growing with the distance from the
    most ranks measured; the error it has here when it predicts the largest measured number from the smaller; the error of the measurement;
    and, for the replay, the link at its slow and its fast moments.
    """
    fitted, _ = fit(basis)
    reason = refusal(basis, ranks)
    if reason or not fitted:
        return Prediction(ranks, None, None, None, "", reason or "needs the throughput at two or more rank counts")
    model, last = fitted[0], basis.points[-1]
    time = model.rank_s(ranks)
    distance = max(_NEAR, ranks / last.ranks - 1)
    parts = [model.error * distance, (held_out(basis, model.name) or 0.0) * distance, last.error or 0.0, *_of_link(basis, model, ranks)]
    error = sum(part**2 for part in parts) ** 0.5
    rate, ideal = ranks / time, ranks / min(point.rank_s for point in basis.points)
    high = rate / (1 - error) if error < 1 else ideal
    return Prediction(ranks, rate, rate / (1 + error), max(rate, min(high, ideal)), model.name)


def refusal(basis: Basis, ranks: int) -> str:
    """Why nothing can be predicted for this number of ranks; empty if it can."""
    if len(basis.points) < 2:
        return "needs the throughput at two or more rank counts, not counting a flagged baseline"
    if basis.kind == "mixed":
        return "neither the batch per rank nor the total batch is constant: repeat the measurements with one of them fixed"
    most = basis.points[-1].ranks
    if ranks > _REACH * most:
        return f"{ranks} ranks are more than {_REACH} times the {most} measured: measure {-(-ranks // _REACH)} or more"
    return ""


def held_out(basis: Basis, name: str) -> float | None:
    """Error of the same law when it predicts the largest measured number of ranks from the smaller ones; None: too few points."""
    if len(basis.points) < 3:
        return None
    fitted, _ = fit(replace(basis, points=basis.points[:-1]))
    same = next((model for model in fitted if model.name in _FAMILY.get(name, (name,))), None)
    last = basis.points[-1]
    if same is None:
        return None
    distance = max(_NEAR, last.ranks / basis.points[-2].ranks - 1)
    return abs(same.rank_s(last.ranks) / last.rank_s - 1) / distance


_FAMILY = {"USL": ("USL", "Amdahl"), "Amdahl": ("USL", "Amdahl")}


def _of_link(basis: Basis, model: Model, ranks: int) -> list[float]:
    """What half the spread of the link's bandwidth changes, as a share of the time."""
    if basis.link is None or model.name != "bucket replay":
        return []
    times = []
    for bandwidth in (basis.link.low, basis.link.high):
        fitted, _ = fit(replace(basis, link=replace(basis.link, bandwidth=bandwidth)))
        times += [one.rank_s(ranks) for one in fitted if one.name == model.name]
    return [abs(max(times) - min(times)) / 2 / model.rank_s(ranks)] if len(times) == 2 else []
