"""What each measured number of ranks is worth.

It has efficiency, marginal efficiency, Karp-Flatt, and baselines that cannot be right. X(N) is the
throughput of N ranks in samples/s, T(N) the time of a fixed amount of work. Weak scaling keeps the
batch of a rank, strong scaling that of all ranks together; in both, the efficiency is X(N) / (N
X(1)), for strong scaling the same as T(1) / (N T(N)).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


class Unit:
    """What is counted: samples, or steps if samples were not recorded."""

    SAMPLES = "samples/s"
    STEPS = "steps/s"


#: An efficiency this far above 1 is flagged where no error of the measurement is known.
_MAX_OVER = 0.01
#: Two batch sizes are the same within this: the last batch of an epoch is smaller.
SAME_BATCH = 0.02
#: Share of a step that a main thread stood without a CPU, above which a measurement is called
#: disturbed.
DISTURBED = 0.04


@dataclass(frozen=True)
class Point:
    """The throughput of one number of ranks.

    Attributes:
        samples_per_s: of all ranks together; in the unit ``unit``.
        low, high: its 95 % interval; None: not known.
        batch: samples of one rank in one step; None: not known; 1 where steps are counted.
        notes: what makes this point doubtful.
        unit: SAMPLES or STEPS: then N ranks make N steps at a time, and a step stands for a sample
            throughout.
        without_cpu: share (0 to 1) of a step that a main thread could run but had no CPU, of the
            rank where it is largest.
    """

    ranks: int
    samples_per_s: float
    low: float | None = None
    high: float | None = None
    batch: float | None = None
    notes: tuple[str, ...] = ()
    unit: str = Unit.SAMPLES
    without_cpu: float = 0.0

    def in_steps(self) -> "Point":
        """Return the point in steps/s, to be compared with others of which samples were not seen."""
        assert self.batch is not None
        low, high = (
            None if value is None else value / self.batch for value in (self.low, self.high)
        )
        return replace(
            self,
            samples_per_s=self.samples_per_s / self.batch,
            low=low,
            high=high,
            batch=1.0,
            unit=Unit.STEPS,
        )

    @property
    def disturbed(self) -> bool:
        """Whether too few CPUs were free while this was measured."""
        return self.without_cpu > DISTURBED

    @property
    def error(self) -> float | None:
        """Half the interval, as a share of the throughput."""
        return (
            None
            if self.low is None or self.high is None
            else (self.high - self.low) / 2 / self.samples_per_s
        )

    @property
    def rank_s(self) -> float:
        """Seconds that one rank takes for one sample: N / X(N)."""
        return self.ranks / self.samples_per_s

    @property
    def step_s(self) -> float | None:
        return self.batch * self.rank_s if self.batch else None


@dataclass(frozen=True)
class ScalingRow:
    """A point beside the others. None: not defined for it.

    Attributes:
        efficiency: X(N) N0 / (N X(N0)), N0 the smallest number of ranks measured; None where the
            ranks share no work (launch_points.py).
        marginal: of the ranks that were added to the point before.
        karp_flatt: the experimentally determined serial fraction.
        flagged: the efficiency is above 100 %: the baseline is bad.
    """

    point: Point
    efficiency: float | None
    marginal: float | None
    karp_flatt: float | None
    flagged: bool


def compare_points(points: Sequence[Point]) -> list[ScalingRow]:
    """Compare every point with the smallest.

    Args:
        points: ascending in ranks, none twice.
    """
    first = points[0]
    listed = []
    for before, point in zip([None, *points], points, strict=False):
        worth = _efficiency(first, point)
        listed.append(
            ScalingRow(
                point,
                worth,
                _marginal_efficiency(first, before, point) if before else None,
                _karp_flatt(point.samples_per_s / first.samples_per_s, point.ranks)
                if first.ranks == 1 < point.ranks
                else None,
                worth > 1 + max(_MAX_OVER, math.hypot(first.error or 0.0, point.error or 0.0)),
            )
        )
    return listed


def _efficiency(base: Point, point: Point) -> float:
    """Return the throughput of a rank, over that of a rank of the base: X(N) N0 / (N X(N0))."""
    return base.rank_s / point.rank_s


def _marginal_efficiency(base: Point, before: Point, point: Point) -> float:
    """Return the throughput that each added rank brought, over that of a rank of the base."""
    return (point.samples_per_s - before.samples_per_s) / (point.ranks - before.ranks) * base.rank_s


def _karp_flatt(speedup: float, ranks: int) -> float:
    """Return (1/S - 1/N) / (1 - 1/N).

    Karp and Flatt, Measuring Parallel Processor Performance, Communications of the ACM 33(5), 1990.
    """
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)
