"""How the time of a sample grows with the ranks, and what that says of its cause.

At a fixed batch per rank, a ring all-reduce adds 2(n-1)/n S/B of transfer, which is at 7/8 of its limit with eight ranks, and 2(n-1) alpha
of latency, which grows with every rank (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH,
IJHPCA 19(1), 2005). So does what all ranks of a host share: its CPUs, memory, PCIe, storage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.scaling.conclusion import grows
from feedline.analysis.scaling.efficiency import Point

#: Growth of a sample's time below which there is nothing to explain.
_FLAT = 0.03
#: The better of both curves must leave less than this part of the other's squared error.
_CLEARLY = 0.5


@dataclass(frozen=True)
class Shape:
    """The verdict.

    Attributes:
        name: ``linear``, ``saturating``, ``flat``, or ``unclear``.
        growth: time of a sample and rank with the most ranks over that with the fewest, minus 1.
        misfit: of both curves: root mean square error over the mean time.
    """

    name: str
    growth: float
    misfit: dict[str, float]
    message: str = field(metadata={"key": "says"})


_CURVES: dict[str, Callable[[float], float]] = {"linear": lambda n: n - 1, "saturating": lambda n: 2 * (n - 1) / n}


def shape_of(points: Sequence[Point], kind: str) -> Shape | None:
    """Which curve the time of a sample and rank follows; None with fewer than three points, or where batches per rank differ.

    In strong scaling the transfer is divided by ever smaller batches, so that the bandwidth's part grows with the ranks, too.

    Args:
        points: ascending in ranks, without a bad baseline.
        kind: see ``efficiency.scaling_kind``; ``unknown`` is taken as weak.
    """
    if len(points) < 3 or kind not in ("weak", "unknown"):
        return None
    ranks = np.array([point.ranks for point in points], float)
    times = np.array([point.rank_s for point in points])
    growth = float(times[-1] / times[0] - 1)
    misfit = {name: _misfit(np.array([curve(n) for n in ranks]), times) for name, curve in _CURVES.items()}
    noise = max(point.error or 0.0 for point in points)
    if growth < max(_FLAT, noise):
        return Shape("flat", growth, misfit, grows("flat", points, growth))
    best, other = sorted(misfit, key=lambda name: misfit[name])
    name = "unclear" if misfit[best] ** 2 > _CLEARLY * misfit[other] ** 2 else best
    return Shape(name, growth, misfit, grows(name, points, growth))


def _misfit(curve: np.ndarray, times: np.ndarray) -> float:
    """Root mean square error of ``a + b curve`` with b >= 0, over the mean time."""
    off, spread = curve - curve.mean(), times - times.mean()
    slope = max(0.0, float(off @ spread) / float(off @ off))
    return float(np.sqrt(np.mean((spread - slope * off) ** 2)) / times.mean())
