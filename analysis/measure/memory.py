"""Memory that grows while the steps run: how fast, until when, and what holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.measure.counted_steps import Counted
from feedline.analysis.measure.growing_lines import (
    keeping_line,
    line_of_loop,
    lines_of_loop,
    lines_of_samples,
)
from feedline.analysis.measure.jumps import Jumps
from feedline.analysis.measure.model import Gauge, Holder, KeptGraphs, MemoryGrowth
from feedline.analysis.measure.pace import stands_for
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

_MOST_LINES = 4  # that are told, where several may keep what grows
_WARM_UP = 0.3  # of the steps: allocators, caches and queues fill
_FEWEST, _FEWEST_LOOKS = 8, 6  # readings of the main process, and of workers, after that
_FEWEST_COUNTS = 4  # of blocks: how many bytes come with each new one has to be known roughly
#: The same where what is kept was seen: graphs of past steps that are still there.
_FEWEST_PROVEN, _PROOF = 4, (Holder.GRAPHS,)
_FEWEST_STEPS = 20
_LEAST_S = 2.0
#: Less is noise: of bytes, and of what the process had.
_LEAST_BYTES, _LEAST_SHARE = 16e6, 0.02
#: Of the growth per step, in each third of these readings: with less, it comes to an end, or comes
#: in jumps as an allocator's memory does.
_THIRDS, _STEADY = 3, 0.4
_FEWEST_OF_A_THIRD = 4  # readings: of fewer, no slope is taken
#: Bytes of growth for each new block of Python's allocator, whose blocks have 512 B at most. Up to
#: the first figure, small objects grow; from the second on, large pieces do.
_OF_OBJECTS, _OF_PIECES = 1024.0, 2048.0
#: Bytes that a figure takes at least and at most, and figures that are opened at least, where these
#: explain what grows.
_OF_FIGURES, _OF_LARGE_FIGURES, _FEWEST_FIGURES = 20e3, 200e6, 5
_POINTS, _DRAWS, _BLOCKS = 48, 200, 8
#: Of the graphs of past steps that were looked at: with fewer, some wait for a later update.
_KEPT, _FEWEST_GRAPHS = 0.9, 4
_COPIED = 0.5  # of the private bytes that workers gain: what they shared before

_USUAL = 0.5  # of the readings, that have the usual number of processes

_Series = tuple[FloatArray, FloatArray]  # steps made by then, bytes
_NOTHING: _Series = (np.zeros(0), np.zeros(0))


def growths(
    main: Process,
    steps: Steps | None,
    counted: Counted,
    gauges: Sequence[Gauge],
    origin: int,
    source: SourceLines,
) -> list[MemoryGrowth]:
    """Return what grows, the main process first.

    Args:
        counted: steps that were only counted.
        gauges: of the same rank.
        origin: ns at which their time begins.
    """
    if steps is None or len(steps.start) + counted.number < _FEWEST_STEPS:
        return []
    clock = _StepClock.of(steps, counted, origin, stands_for(main, steps))
    by_name = {gauge.name: clock.series(gauge) for gauge in gauges}
    events = _events(main, steps, clock, origin)
    growing = []
    shared = _shared(by_name, clock, events)
    if series := by_name.get("memory/main"):
        held = _kept_by_main(series, by_name.get("memory/main_blocks"), _graphs(main, source))
        held = _with_figures(held, series, by_name.get("memory/figures"))
        if shared is not None:
            series = series[0], series[1] + np.interp(series[0], *shared)
            held = replace(held or _Held(None), holder=(held and held.holder) or Holder.PIECES)
        growing.append(_growth("main", series, clock, held, events))
    private, anonymous = _of_children(by_name)
    if private is not None and anonymous is not None:
        series, held = _kept_by_workers(private, anonymous)
        growing.append(_growth("workers", series, clock, held, events))
    return _until(
        [one for one in growing if one is not None],
        _left(by_name, shared is not None),
        clock.step_s,
    )


def _shared(
    by_name: Mapping[str, _Series], clock: "_StepClock", events: Mapping[str, FloatArray]
) -> _Series | None:
    """Return what is used of /dev/shm, where that grows: batches of workers that are kept.

    None: it does not grow, or the loader has no workers.
    """
    size, free = (by_name.get(f"shm/{name}", _NOTHING) for name in ("size", "free"))
    children = by_name.get("memory/children", _NOTHING)[1]
    if not children.any() or not len(free[0]) or len(size[0]) != len(free[0]):
        return None
    used = free[0], size[1] - free[1]
    return used if _growth("main", used, clock, None, events) is not None else None


def placed(
    grown: MemoryGrowth, main: Process, source: SourceLines, made_by: str, collate: str
) -> MemoryGrowth:
    """Add the line that keeps what grows, where the source shows it.

    Args:
        made_by: file and line of the function that makes samples; empty: unknown.
        collate: name of the function that collates.
    """
    if grown.place or grown.holder in (Holder.GRAPHS, Holder.COPIES):
        return grown
    lines = (
        lines_of_samples(made_by, collate, source)
        if grown.who == "workers"
        else lines_of_loop(model_called_at(main), source, grown.at == "")
    )
    if len(lines) > _MOST_LINES:
        return grown
    return replace(grown, place=lines[0]) if len(lines) == 1 else replace(grown, places=lines)


def adding_line(main: Process, source: SourceLines) -> str:
    """Return the line of the training loop that adds to what outlives a step; empty: unknown."""
    return line_of_loop(model_called_at(main), source)


def model_called_at(main: Process) -> str:
    """Return the line of the program that calls the model in training; empty: unknown."""
    looks = main.view(Stage.KEPT)
    if not len(looks):
        return ""
    return main.names.get(int(looks[np.argmax(looks["start"])]["source"]), "")


def _events(main: Process, steps: Steps, clock: "_StepClock", origin: int) -> dict[str, FloatArray]:
    """Return how many steps were made when each epoch began, and when each evaluation ended."""
    begun = main.view(Stage.EPOCH)
    of_training = begun[np.isin(begun["source"], list(steps.boundaries.training_loaders))]
    moments = {
        "epoch": np.sort(of_training["start"]),
        "evaluation": steps.boundaries.evaluation[:, 1],
    }
    return {name: clock.made((at - origin) / 1e9) for name, at in moments.items()}


def _of_children(by_name: dict[str, _Series]) -> tuple[_Series | None, _Series | None]:
    """Return what the workers have, private and in all, where all of the usual number live.

    Those of an evaluation may come and go beside them.
    """
    names = ("memory/children", "memory/children_private", "memory/children_anonymous")
    number, private, anonymous = (by_name.get(name, _NOTHING) for name in names)
    if not len(number[0]) or not len(number[0]) == len(private[0]) == len(anonymous[0]):
        return None, None
    kinds, times = np.unique(number[1], return_counts=True)
    usual = number[1] == kinds[np.argmax(times)]
    if usual.mean() < _USUAL or not number[1][usual][0]:
        return None, None
    return (private[0][usual], private[1][usual]), (anonymous[0][usual], anonymous[1][usual])


def chained(main: Process, source: SourceLines) -> KeptGraphs | None:
    """Return the graphs of past steps that the main process keeps; None: it keeps none."""
    held = _graphs(main, source)
    if held is None or held.holder is not Holder.GRAPHS:
        return None
    return KeptGraphs(held.graphs, held.graphs_alive, held.place)


@dataclass(frozen=True)
class _StepClock:
    """How many steps were made when.

    Attributes:
        at_s: float64 [n], since the recording began.
        steps: float64 [n], made by then.
    """

    at_s: FloatArray
    steps: FloatArray

    @classmethod
    def of(cls, steps: Steps, counted: Counted, origin: int, each: float) -> "_StepClock":
        """Count the steps up to each moment.

        Args:
            origin: ns at which the time of the gauges begins.
            each: steps that a recorded one stands for; more than 1: windows were forgotten.
        """
        ends = np.concatenate([steps.boundaries.end, counted.start, counted.end])
        number = np.concatenate(
            [np.ones(len(steps.start)), np.zeros(len(counted.start)), counted.steps]
        )
        if each > 1:
            at, forgotten = _forgotten(steps, counted, (each - 1) * len(steps.start))
            ends, number = np.concatenate([ends, at]), np.concatenate([number, forgotten])
        order = np.argsort(ends, kind="stable")
        return cls((ends[order] - origin) / 1e9, np.cumsum(number[order]))

    @property
    def step_s(self) -> float:
        """Mean seconds from one step to the next."""
        made = float(self.steps[-1] - self.steps[0])
        return float(self.at_s[-1] - self.at_s[0]) / made if made else 0.0

    def made(self, at_s: FloatArray) -> FloatArray:
        """Return how many steps were made at these moments."""
        return np.interp(at_s, self.at_s, self.steps)

    def series(self, gauge: Gauge) -> _Series:
        """Return a gauge by the number of steps, without those that warm up."""
        at, values = np.array(gauge.at_s), np.array(gauge.values)
        made = self.made(at)
        last = float(self.steps[-1])
        chosen = (made >= _WARM_UP * last) & (at <= self.at_s[-1])
        return made[chosen], values[chosen]


def _forgotten(steps: Steps, counted: Counted, number: float) -> tuple[IntArray, FloatArray]:
    """Return the ends of the gaps between what is known of the steps, ns, and the steps in each.

    Args:
        number: of steps in all gaps, which are about as many per second in each.
    """
    start = np.concatenate([steps.boundaries.start, counted.start])
    end = np.concatenate([steps.boundaries.end, counted.end])
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - end[:-1], 0)
    return start[1:], number * gaps / max(int(gaps.sum()), 1)


@dataclass(frozen=True)
class _Held:
    """What is known of what holds memory.

    Attributes:
        holder: None: unknown.
    """

    holder: Holder | None
    graphs: int = 0
    graphs_alive: int = 0
    place: str = ""
    still_shared_bytes: float | None = None
    new_objects: float | None = None
    figures: float | None = None


def _growth(
    who: str,
    series: _Series,
    clock: _StepClock,
    held: _Held | None,
    events: Mapping[str, FloatArray],
) -> MemoryGrowth | None:
    """Return the growth of a series; None: there is none that is sure and steady.

    What holds it is a proof of its own: what workers copy comes to an end, and is told as well.
    """
    fewest = _FEWEST if who == "main" else _FEWEST_LOOKS
    if len(series[0]) < (_FEWEST_PROVEN if held is not None and held.holder in _PROOF else fewest):
        return None
    jumps = Jumps.of(*series, events)
    made, values = _thinned(series)
    if jumps is None and (held is None or held.holder is not Holder.COPIES):
        made, values = _settled(made, values)
    span = float(made[-1] - made[0])
    if span * clock.step_s < _LEAST_S:
        return None
    rate = jumps.per_step if jumps is not None else slope(made, values)
    if rate * span < max(_LEAST_BYTES, _LEAST_SHARE * float(values[0])):
        return None
    holder = held.holder if held is not None else None
    grown_bytes = rate * span
    if jumps is None and holder is Holder.COPIES:  # the less is left to copy, the slower it gets
        made, values = made[len(made) // 2 :], values[len(made) // 2 :]
        rate = slope(made, values)
    elif jumps is None and holder is not Holder.GRAPHS and not _is_steady(made, values, rate):
        return None
    low, high = _interval(made, values) if jumps is None else jumps.interval
    if low <= 0:
        return None
    grown = MemoryGrowth(who, rate, low, high, grown_bytes, float(values[-1]))
    if jumps is not None:
        grown = replace(grown, every_steps=jumps.every_steps, at=jumps.at)
    if held is None:
        return grown
    return replace(
        grown,
        holder=held.holder,
        graphs=held.graphs,
        graphs_alive=held.graphs_alive,
        place=held.place,
        still_shared_bytes=held.still_shared_bytes,
        new_objects=held.new_objects,
        figures=held.figures,
    )


def _is_steady(made: FloatArray, values: FloatArray, rate: float) -> bool:
    parts = np.array_split(np.arange(len(made)), _THIRDS)
    ends = [(float(made[part].mean()), float(values[part].mean())) for part in parts]
    whole = [(float(made[0]), float(values[0])), *ends, (float(made[-1]), float(values[-1]))]
    return all(
        later[1] - before[1] >= _STEADY * rate * (later[0] - before[0])
        for before, later in pairwise(whole)
    )


def _settled(made: FloatArray, values: FloatArray) -> _Series:
    """Return the readings without a first third in which something still filled up."""
    first = len(made) // _THIRDS
    while first >= _FEWEST_OF_A_THIRD and (
        slope(made[:first], values[:first]) * _STEADY > slope(made, values) >= 0
    ):
        made, values = made[first:], values[first:]
        first = len(made) // _THIRDS
    return made, values


def _kept_by_workers(private: _Series, anonymous: _Series) -> tuple[_Series, _Held | None]:
    """Return how workers grow, and whether they copy what they shared or keep something else.

    What they keep is told by all that they have: they copy some of what they shared at any time, as
    when garbage is collected, and that grows by nothing else.
    """
    made, shared = private[0], anonymous[1] - private[1]
    if len(made) < _FEWEST_LOOKS:
        return private, None
    lost, gained = (slope(*_thinned(series)) for series in ((made, shared), private))
    if -lost >= _COPIED * gained:
        return private, _Held(Holder.COPIES, still_shared_bytes=max(float(shared[-1]), 0.0))
    return (made, anonymous[1] - shared[-1]), _Held(Holder.OWN)


def _graphs(main: Process, source: SourceLines) -> _Held | None:
    """Return whether the main process keeps graphs of past steps, and where; None: not known."""
    looks = main.view(Stage.KEPT)
    if not len(looks):
        return None
    last = looks[np.argmax(looks["start"])]
    graphs, alive = int(last["graphs"]), int(last["alive"])
    if graphs < _FEWEST_GRAPHS:
        return None
    if alive < _KEPT * graphs:
        return _Held(None, graphs=graphs, graphs_alive=alive)
    place = keeping_line(model_called_at(main), source)
    return _Held(Holder.GRAPHS, graphs=graphs, graphs_alive=alive, place=place)


def _kept_by_main(series: _Series, blocks: _Series | None, graphs: _Held | None) -> _Held | None:
    """Return what holds memory in the main process: graphs, small objects or large pieces."""
    known = graphs or _Held(None)
    if blocks is None or len(blocks[0]) < _FEWEST_COUNTS:
        return graphs
    grown, new = slope(*_thinned(series)), slope(*_thinned(blocks))
    if grown <= 0:
        return graphs
    each = grown / new if new > 0 else np.inf
    if each < _OF_OBJECTS:
        return replace(known, holder=Holder.OBJECTS, place="", new_objects=new)
    if known.holder is None and each >= _OF_PIECES:
        return replace(known, holder=Holder.PIECES, new_objects=max(new, 0.0))
    return graphs


def _with_figures(held: _Held | None, series: _Series, figures: _Series | None) -> _Held | None:
    """Return what holds memory, with pyplot's figures where these explain how it grows."""
    if figures is None or len(figures[0]) < _FEWEST_LOOKS:
        return held
    opened = figures[1][-1] - figures[1][0]
    grown, new = slope(*_thinned(series)), slope(*_thinned(figures))
    if opened < _FEWEST_FIGURES or new <= 0 or not _OF_FIGURES <= grown / new <= _OF_LARGE_FIGURES:
        return held
    return replace(held or _Held(None), figures=float(figures[1][-1]))


def _thinned(series: _Series) -> _Series:
    groups = np.array_split(np.arange(len(series[0])), min(len(series[0]), _POINTS))
    at, values = ([float(part[group].mean()) for group in groups] for part in series)
    return np.array(at), np.array(values)


def slope(made: FloatArray, values: FloatArray) -> float:
    """Return the median slope of all pairs (Theil and Sen): single jumps do not move it."""
    first, second = np.triu_indices(len(made), 1)
    apart = made[second] - made[first]
    slopes = (values[second] - values[first])[apart != 0] / apart[apart != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def _interval(made: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the slope: bootstrap over blocks of readings."""
    dice, size = np.random.default_rng(0), max(2, len(made) // _BLOCKS)
    starts = np.arange(len(made) - size + 1)
    drawn = []
    for _ in range(_DRAWS):
        begin = dice.choice(starts, -(-len(made) // size))
        chosen = np.sort((begin[:, None] + np.arange(size)).ravel())
        drawn.append(slope(made[chosen], values[chosen]))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def _left(by_name: dict[str, _Series], shared: bool) -> tuple[float, str] | None:
    """Return the bytes until a limit is reached, and whose: the machine's or a control group's.

    Args:
        shared: /dev/shm fills as well.
    """
    limits = []
    if len(by_name.get("memory/available", ((), ()))[0]):
        limits.append((float(by_name["memory/available"][1][-1]), "machine"))
    if shared:
        limits.append((float(by_name["shm/free"][1][-1]), "machine"))
    used, limit = by_name.get("cgroup/memory"), by_name.get("cgroup/memory_limit")
    if used is not None and limit is not None and len(used[0]) and len(limit[0]):
        limits.append((float(limit[1][-1] - used[1][-1]), "cgroup"))
    return min(limits, default=None)


def _until(
    growing: Sequence[MemoryGrowth], left: tuple[float, str] | None, step_s: float
) -> list[MemoryGrowth]:
    """Add when the limit is reached, to which all that grows contributes."""
    if left is None:
        return list(growing)
    room = max(left[0], 0.0)
    ends = [one for one in growing if one.holder is Holder.COPIES]
    lasting = sum(one.per_step_bytes for one in growing if one.holder is not Holder.COPIES)
    copying = sum(one.per_step_bytes for one in ends)
    to_copy = sum(one.still_shared_bytes or 0.0 for one in ends)
    steps = room / (lasting + copying) if growing else 0.0
    if lasting and copying * steps > to_copy:  # all is copied by then
        steps = (room - to_copy) / lasting
    return [
        replace(
            one, left_bytes=left[0], limit=left[1], steps_left=steps, seconds_left=steps * step_s
        )
        for one in growing
    ]
