"""Predictions of throughput for numbers of ranks that were not run.

Each has an interval, or a reason why there is none.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.ranks.buckets import Link, Timeline, simulate_steps
from feedline.analysis.ranks.step_profile import Bucket, Ring, StepProfile
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.text.formatting import share

#: A law is refused where its constant, what it cannot explain of a measured step, is more than this
#: share of it.
_MAX_UNEXPLAINED = 0.3
#: Error of a replay that holds four of five of its predictions for twice the ranks, as a share of
#: the time: the 80 % quantile over 18 predictions of three trainings, of which any two give 0.096
#: to 0.104 (docs/measured/scaling.md).
_ON_OTHERS = 0.10
#: How far beyond the most ranks measured a prediction goes. From 1 and 2 to 8 both laws missed the
#: source table by 46 %.
_MAX_REACH = 4
#: Between measured points, or close above them, an interval is at least this part of that of a
#: doubling.
_MIN_DISTANCE = 0.5
_FAMILY = {"USL": ("USL", "Amdahl"), "Amdahl": ("USL", "Amdahl")}


def _ring_s(nbytes: float, ranks: int, bandwidth: float, alpha_s: float) -> float:
    """Return the seconds of a ring all-reduce: 2 (n - 1) alpha + 2 (n - 1) / n S / B.

    Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005.
    """
    return 2 * (ranks - 1) * alpha_s + 2 * (ranks - 1) / ranks * nbytes / bandwidth


def _last_end(buckets: tuple[Bucket, ...], ranks: int, link: Ring) -> float:
    """Return when the last bucket is done, s after the begin of the step.

    Args:
        buckets: in order of ``ready_s``.
        ranks: that share the link.
        link: what moves the bytes.
    """
    if ranks < 2 or not buckets:
        return max((bucket.ready_s for bucket in buckets), default=0.0)
    ready = np.rint(np.array([bucket.ready_s for bucket in buckets]) * 1e9).astype(np.int64)[
        None, :, None
    ]
    nbytes = np.array([bucket.nbytes for bucket in buckets])
    together = np.zeros(len(buckets), bool)
    step = Timeline(
        ready, np.zeros(1, np.int64), nbytes, together, ranks, link.slots, "", np.zeros(1, np.int64)
    )
    return float(
        simulate_steps(ready, step, Link(link.bandwidth, 2 * (ranks - 1) * link.alpha_s, True))[0]
    )


def _step_s(anatomy: StepProfile, ranks: int, link: Ring) -> float:
    """Return the step with N ranks, if each did what a rank alone does.

    What follows the backward begins when the last bucket is done.
    """
    last = max(anatomy.backward_s[1], _last_end(anatomy.buckets, ranks, link))
    blocked = (
        sum(_ring_s(nbytes, ranks, link.bandwidth, link.alpha_s) for nbytes in anatomy.blocking)
        if ranks > 1
        else 0.0
    )
    return anatomy.step_s - anatomy.backward_s[1] + last + blocked


@dataclass(frozen=True)
class _Model:
    """A fitted law.

    Attributes:
        rank_s: N -> seconds of one sample on its rank, N / X(N).
        parameters: what was fitted.
        error: half width of its 80 % interval, as a share, when the ranks are doubled.
    """

    name: str
    rank_s: Callable[[int], float]
    parameters: dict[str, float]
    error: float


def _usl(points: Sequence[Point]) -> _Model:
    """Fit the Universal Scalability Law, X(N) = N X1 / (1 + sigma (N - 1) + kappa N (N - 1)).

    From two points, Amdahl's law: kappa = 0. N / X is linear in 1 / X1, sigma / X1 and kappa / X1:
    least squares with none negative.

    Args:
        points: two or more.
    """
    ranks = np.array([point.ranks for point in points], float)
    terms = np.stack([np.ones_like(ranks), ranks - 1, ranks * (ranks - 1)])[: min(3, len(points))]
    fitted = _not_negative(terms, np.array([point.rank_s for point in points]))
    per_sample, serial, crosstalk = (
        float(value) for value in np.append(fitted, np.zeros(3 - len(fitted)))
    )
    parameters = {
        "x1": 1 / per_sample,
        "sigma": serial / per_sample,
        "kappa": crosstalk / per_sample,
    }
    name = "USL" if crosstalk else "Amdahl"
    return _Model(
        name, lambda n: per_sample + serial * (n - 1) + crosstalk * n * (n - 1), parameters, 0.20
    )


def _not_negative(terms: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fit by least squares in relative errors with no negative coefficient.

    With three terms, every choice of them is tried.

    Args:
        terms: float64 [k, n]; the first is always taken.
        values: float64 [n].
    """
    best, best_error = np.zeros(len(terms)), math.inf
    others = range(1, len(terms))
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(others, size) for size in range(len(terms))
    ):
        picked = [0, *chosen]
        coefficients, *_ = np.linalg.lstsq(
            (terms[picked] / values).T, np.ones(len(values)), rcond=None
        )
        error = float(np.sum(((coefficients @ terms[picked]) / values - 1) ** 2))
        if (coefficients >= 0).all() and coefficients[0] > 0 and error < best_error - 1e-15:
            best, best_error = np.zeros(len(terms)), error
            best[picked] = coefficients
    return best


def _bucket_replay(anatomy: StepProfile, link: Ring, measured: Point) -> _Model:
    """Make a model of the replay of the buckets, plus a constant, plus jitter.

    The constant is what the replay leaves of the measured point. N ranks wait for the slowest of
    them: the largest of N normal times is about sigma sqrt(2 ln N) above their mean (Cramer,
    Mathematical Methods of Statistics, 1946, 28.6), of which the constant has its part already.

    Args:
        anatomy: the step of one rank.
        link: what moves the bytes.
        measured: the point that the constant is fitted to, of two ranks or more and known batch.
    """
    assert measured.batch is not None
    batch = measured.batch

    def raw(n: int) -> float:
        return _step_s(anatomy, n, link) + anatomy.jitter_s * math.sqrt(2 * math.log(n))

    constant = batch * measured.rank_s - raw(measured.ranks)
    parameters = {
        "constant_s": constant,
        "bandwidth": link.bandwidth,
        "alpha_s": link.alpha_s,
        "jitter_s": anatomy.jitter_s,
    }
    return _Model(
        "bucket replay",
        lambda n: (raw(n) + (constant if n > 1 else 0.0)) / batch,
        parameters,
        _ON_OTHERS,
    )


@dataclass(frozen=True)
class ScalingBasis:
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
    why: str = (
        "it needs runs recorded by `feedline run`, because throughputs say nothing about "
        "collectives"
    )


@dataclass(frozen=True)
class ThroughputPrediction:
    """samples/s of all ranks together with an interval of about 80 %.

    All are None where it is refused, and ``why`` says why.
    """

    ranks: int
    samples_per_s: float | None
    low: float | None
    high: float | None
    model: str
    why: str = ""


def fit_laws(basis: ScalingBasis) -> tuple[list[_Model], list[str]]:
    """Fit all laws that the measurements allow, the most trusted first.

    Say why others are left out.
    """
    if len(basis.points) < 2:
        return [], ["scaling laws need the throughput at two or more rank counts"]
    models, refused = [], []
    last = basis.points[-1]
    if basis.anatomy is None or basis.link is None:
        refused.append(f"no replay of gradient buckets: {basis.why}")
    elif basis.kind != "weak" or last.batch is None:
        refused.append(
            "no replay of gradient buckets: it needs a constant batch per rank, and here it "
            "changes with the number of ranks"
        )
    else:
        replayed = _bucket_replay(basis.anatomy, basis.link, last)
        unexplained = replayed.parameters["constant_s"] / (last.rank_s * last.batch)
        if abs(unexplained) <= _MAX_UNEXPLAINED:
            models.append(replayed)
        else:
            refused.append(
                f"bucket replay: leaves {share(abs(unexplained))} of the step of {last.ranks} "
                f"ranks unexplained"
            )
    models.append(_usl(basis.points))
    return models, refused


def predict(basis: ScalingBasis, ranks: int) -> ThroughputPrediction:
    """Predict with the most trusted law.

    The interval joins, as the root of the sum of squares: the error that the law had on other
    trainings, growing with the distance from the most ranks measured; the error it has here when it
    predicts the largest measured number from the smaller; the error of the measurement; and, for
    the replay, the link at its slow and its fast moments.
    """
    fitted, _ = fit_laws(basis)
    reason = _refusal(basis, ranks)
    if reason or not fitted:
        return ThroughputPrediction(
            ranks, None, None, None, "", reason or "needs the throughput at two or more rank counts"
        )
    model, last = fitted[0], basis.points[-1]
    time = model.rank_s(ranks)
    distance = max(_MIN_DISTANCE, ranks / last.ranks - 1)
    parts = [
        model.error * distance,
        (held_out(basis, model.name) or 0.0) * distance,
        last.error or 0.0,
        *_of_link(basis, model, ranks),
    ]
    error = sum(part**2 for part in parts) ** 0.5
    rate, ideal = ranks / time, ranks / min(point.rank_s for point in basis.points)
    high = rate / (1 - error) if error < 1 else ideal
    return ThroughputPrediction(
        ranks, rate, rate / (1 + error), max(rate, min(high, ideal)), model.name
    )


def _refusal(basis: ScalingBasis, ranks: int) -> str:
    """Say why nothing can be predicted for this number of ranks; empty if it can."""
    if len(basis.points) < 2:
        return "needs the throughput at two or more rank counts, not counting a flagged baseline"
    if basis.kind == "mixed":
        return (
            "neither the batch per rank nor the total batch is constant: repeat the "
            "measurements with one of them fixed"
        )
    most = basis.points[-1].ranks
    if ranks > _MAX_REACH * most:
        return (
            f"{ranks} ranks are more than {_MAX_REACH} times the {most} measured: measure "
            f"{-(-ranks // _MAX_REACH)} or more"
        )
    return ""


def held_out(basis: ScalingBasis, name: str) -> float | None:
    """Return the error of the same law at the largest measured number of ranks.

    None: too few points.

    It is fitted to the smaller ones.
    """
    if len(basis.points) < 3:
        return None
    fitted, _ = fit_laws(replace(basis, points=basis.points[:-1]))
    same = next((model for model in fitted if model.name in _FAMILY.get(name, (name,))), None)
    last = basis.points[-1]
    if same is None:
        return None
    distance = max(_MIN_DISTANCE, last.ranks / basis.points[-2].ranks - 1)
    return abs(same.rank_s(last.ranks) / last.rank_s - 1) / distance


def _of_link(basis: ScalingBasis, model: _Model, ranks: int) -> list[float]:
    """Return what half the spread of the link's bandwidth changes, as a share of the time."""
    if basis.link is None or model.name != "bucket replay":
        return []
    times = []
    for bandwidth in (basis.link.low, basis.link.high):
        fitted, _ = fit_laws(replace(basis, link=replace(basis.link, bandwidth=bandwidth)))
        times += [law.rank_s(ranks) for law in fitted if law.name == model.name]
    return [abs(max(times) - min(times)) / 2 / model.rank_s(ranks)] if len(times) == 2 else []
