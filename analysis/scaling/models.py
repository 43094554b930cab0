"""Laws of scaling, each fitted to what was measured: a function from the number of ranks to the time of a step or of a sample.

Errors of the mean and of the worst prediction of 3, 4 and 6 ranks from 1 and 2, on gloo at 100 to 300 Mbit/s (docs/scaling.md): bucket
replay 4.3 and 13.8 %, p-norm 3.9 and 9.2 %, Amdahl and USL 12.0 and 55.7 %, additive 28.9 %.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.scaling import replay
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.step_profile import Ring, StepProfile, ring_s

#: Bounds of Pollux's exponent: 1 is no overlap, 10 about the maximum of both (Qiao and others, Pollux, OSDI 2021).
_GAMMA = (1.0, 10.0)
#: A law is refused where its constant, what it cannot explain of a measured step, is more than this share of it.
UNEXPLAINED = 0.3
#: Error of a replay that holds four of five of its predictions for twice the ranks, as a share of the time: the 80 % quantile over 18
#: predictions of three trainings, of which any two give 0.096 to 0.104 (docs/measured/scaling.md).
_ON_OTHERS = 0.10


@dataclass(frozen=True)
class Model:
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


def usl(points: Sequence[Point]) -> Model:
    """The Universal Scalability Law, X(N) = N X1 / (1 + sigma (N - 1) + kappa N (N - 1)): Gunther, Guerrilla Capacity Planning, 2007.

    From two points, Amdahl's law: kappa = 0. N / X is linear in 1 / X1, sigma / X1 and kappa / X1: least squares with none negative.

    Args:
        points: two or more.
    """
    ranks = np.array([point.ranks for point in points], float)
    terms = np.stack([np.ones_like(ranks), ranks - 1, ranks * (ranks - 1)])[: min(3, len(points))]
    fitted = _not_negative(terms, np.array([point.rank_s for point in points]))
    one, serial, crosstalk = (float(value) for value in np.append(fitted, np.zeros(3 - len(fitted))))
    parameters = {"x1": 1 / one, "sigma": serial / one, "kappa": crosstalk / one}
    name = "USL" if crosstalk else "Amdahl"
    return Model(name, lambda n: one + serial * (n - 1) + crosstalk * n * (n - 1), parameters, 0.20)


def _not_negative(terms: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least squares in relative errors with no negative coefficient: with three terms, every choice of them is tried.

    Args:
        terms: float64 [k, n]; the first is always taken.
        values: float64 [n].
    """
    best, best_error = np.zeros(len(terms)), math.inf
    others = range(1, len(terms))
    for chosen in itertools.chain.from_iterable(itertools.combinations(others, size) for size in range(len(terms))):
        picked = [0, *chosen]
        found, *_ = np.linalg.lstsq((terms[picked] / values).T, np.ones(len(values)), rcond=None)
        error = float(np.sum(((found @ terms[picked]) / values - 1) ** 2))
        if (found >= 0).all() and found[0] > 0 and error < best_error - 1e-15:
            best, best_error = np.zeros(len(terms)), error
            best[picked] = found
    return best


def additive(anatomy: StepProfile, link: Ring, batch: float) -> Model:
    """T(N) = T(1) + T_net(N): nothing is hidden. A bound from above."""
    return Model("additive", lambda n: (anatomy.step_s + _net_s(anatomy, n, link)) / batch, {}, 0.40)


def p_norm(anatomy: StepProfile, link: Ring, measured: Point) -> Model | None:
    """T(N) = rest + (T_backward^g + T_net(N)^g)^(1/g): Pollux' way to overlap, on the backward instead of the whole step.

    Args:
        measured: the point that g is fitted to, of two ranks or more and known batch.

    Returns:
        None: no g between 1 and 10 explains the point at all.
    """
    assert measured.batch is not None
    backward = anatomy.backward_s[1] - anatomy.backward_s[0]
    rest, batch = anatomy.step_s - backward, measured.batch
    wanted = measured.rank_s * batch

    def step(n: int, gamma: float) -> float:
        net = _net_s(anatomy, n, link)
        return rest + (backward**gamma + net**gamma) ** (1 / gamma)

    low, high = _GAMMA
    fastest, slowest = step(measured.ranks, high), step(measured.ranks, low)
    if backward <= 0 or not fastest / (1 + UNEXPLAINED) <= wanted <= slowest / (1 - UNEXPLAINED):
        return None
    for _ in range(60):  # the step falls as gamma grows
        middle = (low + high) / 2
        low, high = (middle, high) if step(measured.ranks, middle) > wanted else (low, middle)
    gamma, left_over = low, wanted - step(measured.ranks, low)
    return Model("p-norm", lambda n: (step(n, gamma) + (left_over if n > 1 else 0.0)) / batch, {"gamma": gamma}, _ON_OTHERS)


def _net_s(anatomy: StepProfile, ranks: int, link: Ring) -> float:
    """Seconds of all collectives of a step, one after the other."""
    if ranks < 2:
        return 0.0
    messages = [*(bucket.nbytes for bucket in anatomy.buckets), *anatomy.blocking]
    return sum(ring_s(nbytes, ranks, link.bandwidth, link.alpha_s) for nbytes in messages)


def bucket_replay(anatomy: StepProfile, link: Ring, measured: Point) -> Model:
    """The replay of the buckets, plus what it leaves of the measured point as a constant, plus jitter.

    N ranks wait for the slowest of them: the largest of N normal times is about sigma sqrt(2 ln N) above their mean (Cramer, Mathematical
    Methods of Statistics, 1946, 28.6), of which the constant has its part already.

    Args:
        measured: the point that the constant is fitted to, of two ranks or more and known batch.
    """
    assert measured.batch is not None
    batch = measured.batch

    def raw(n: int) -> float:
        return replay.step_s(anatomy, n, link) + anatomy.jitter_s * math.sqrt(2 * math.log(n))

    constant = batch * measured.rank_s - raw(measured.ranks)
    parameters = {"constant_s": constant, "bandwidth": link.bandwidth, "alpha_s": link.alpha_s, "jitter_s": anatomy.jitter_s}
    return Model("bucket replay", lambda n: (raw(n) + (constant if n > 1 else 0.0)) / batch, parameters, _ON_OTHERS)
