"""Memory that grows while the steps run: how fast, until when, and what holds it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from feedline.analysis.intervals import FloatArray
from feedline.analysis.measure.kept_graphs import keeping_line
from feedline.analysis.measure.model import Gauge, Holder, MemoryGrowth
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

_WARM_UP = 0.3  # of the time of the steps: allocators, caches and queues fill
_FEWEST = 8  # readings after that
_FEWEST_STEPS = 20
_LEAST_S = 2.0
#: Less is noise: of bytes, and of what the process had.
_LEAST_BYTES, _LEAST_SHARE = 16e6, 0.02
_GOES_ON = 0.5  # of the growth, in the second half of these readings: with less, it comes to an end
_POINTS, _DRAWS, _BLOCKS = 48, 200, 8
#: Of the graphs of past steps that were looked at: with fewer, some wait for a later update.
_KEPT, _FEWEST_GRAPHS = 0.9, 4
_COPIED = 0.5  # of the private bytes that workers gain: what they shared before


def growths(
    main: Process,
    steps: Steps | None,
    number: int,
    gauges: Sequence[Gauge],
    origin: int,
    source: SourceLines,
) -> list[MemoryGrowth]:
    """Return what grows, the main process first.

    Args:
        number: of steps between the first and the last that was recorded, counted ones too.
        gauges: of the same rank.
        origin: ns at which their time begins.
    """
    if steps is None or number < _FEWEST_STEPS:
        return []
    begin, end = (float(at - origin) / 1e9 for at in (steps.start[0], steps.boundaries.end[-1]))
    since, step_s = begin + _WARM_UP * (end - begin), (end - begin) / number
    by_name = {gauge.name: _between(gauge, since, end) for gauge in gauges}
    found = []
    grown = _growth("main", by_name.get("memory/main"), step_s)
    if grown is not None:
        found.append(_held(grown, main, source))
    children = by_name.get("memory/children")
    private = by_name.get("memory/children_private")
    if children is not None and private is not None and len(set(children[1].tolist())) == 1:
        grown = _growth("workers", private, step_s)
        if grown is not None:
            found.append(_shared(grown, private, by_name.get("memory/children_anonymous")))
    left = _left(by_name)
    return [_until(one, left, step_s) for one in found]


_Series = tuple[FloatArray, FloatArray]  # seconds, bytes


def _between(gauge: Gauge, begin: float, end: float) -> _Series:
    at, values = np.array(gauge.at_s), np.array(gauge.values)
    chosen = (at >= begin) & (at <= end)
    return at[chosen], values[chosen]


def _growth(who: str, series: _Series | None, step_s: float) -> MemoryGrowth | None:
    """Return the growth of a series; None: there is none that is sure and goes on."""
    if series is None or len(series[0]) < _FEWEST:
        return None
    at, values = _thinned(series)
    span = float(at[-1] - at[0])
    if span < _LEAST_S:
        return None
    rate, half = _slope(at, values), len(at) // 2
    least = max(_LEAST_BYTES, _LEAST_SHARE * float(values[0]))
    if rate * span < least or _slope(at[half:], values[half:]) < _GOES_ON * rate:
        return None
    low, high = _interval(at, values)
    if low <= 0:
        return None
    return MemoryGrowth(
        who=who,
        per_step_bytes=rate * step_s,
        low_bytes=low * step_s,
        high_bytes=high * step_s,
        grown_bytes=rate * span,
        at_end_bytes=float(values[-1]),
    )


def _thinned(series: _Series) -> _Series:
    groups = np.array_split(np.arange(len(series[0])), min(len(series[0]), _POINTS))
    at, values = ([float(part[group].mean()) for group in groups] for part in series)
    return np.array(at), np.array(values)


def _slope(at: FloatArray, values: FloatArray) -> float:
    """Return the median slope of all pairs (Theil and Sen): single jumps do not move it."""
    first, second = np.triu_indices(len(at), 1)
    apart = at[second] - at[first]
    slopes = (values[second] - values[first])[apart != 0] / apart[apart != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def _interval(at: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the slope: bootstrap over blocks of readings."""
    dice, size = np.random.default_rng(0), max(2, len(at) // _BLOCKS)
    starts = np.arange(len(at) - size + 1)
    drawn = []
    for _ in range(_DRAWS):
        begin = dice.choice(starts, -(-len(at) // size))
        chosen = np.sort((begin[:, None] + np.arange(size)).ravel())
        drawn.append(_slope(at[chosen], values[chosen]))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def _held(grown: MemoryGrowth, main: Process, source: SourceLines) -> MemoryGrowth:
    """Add whether the main process keeps graphs of past steps, and where."""
    looks = main.view(Stage.KEPT)
    if not len(looks):
        return grown
    last = looks[np.argmax(looks["start"])]
    graphs, alive = int(last["graphs"]), int(last["alive"])
    if graphs < _FEWEST_GRAPHS:
        return grown
    if alive < _KEPT * graphs:
        return replace(grown, graphs=graphs, graphs_alive=alive)
    place = keeping_line(main.names.get(int(last["source"]), ""), source)
    return replace(grown, holder=Holder.GRAPHS, graphs=graphs, graphs_alive=alive, place=place)


def _shared(grown: MemoryGrowth, private: _Series, anonymous: _Series | None) -> MemoryGrowth:
    """Add whether workers copy what they shared: the sum of both stays."""
    if anonymous is None or len(anonymous[0]) != len(private[0]):
        return grown
    shared = (anonymous[0], anonymous[1] - private[1])
    lost = -_slope(*_thinned(shared)) * float(private[0][-1] - private[0][0])
    if lost < _COPIED * grown.grown_bytes:
        return replace(grown, holder=Holder.OWN)
    return replace(
        grown, holder=Holder.COPIES, still_shared_bytes=max(float(shared[1][-1]), 0.0)
    )


def _left(by_name: dict[str, _Series]) -> tuple[float, str] | None:
    """Return the bytes until a limit is reached, and whose: the machine's or a control group's."""
    limits = []
    if len(by_name.get("memory/available", ((), ()))[0]):
        limits.append((float(by_name["memory/available"][1][-1]), "machine"))
    used, limit = by_name.get("cgroup/memory"), by_name.get("cgroup/memory_limit")
    if used is not None and limit is not None and len(used[0]) and len(limit[0]):
        limits.append((float(limit[1][-1] - used[1][-1]), "cgroup"))
    return min(limits, default=None)


def _until(grown: MemoryGrowth, left: tuple[float, str] | None, step_s: float) -> MemoryGrowth:
    if left is None:
        return grown
    steps = max(left[0], 0.0) / grown.per_step_bytes
    return replace(
        grown, left_bytes=left[0], limit=left[1], steps_left=steps, seconds_left=steps * step_s
    )
