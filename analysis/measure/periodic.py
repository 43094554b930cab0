"""Every nth step takes longer: with which period, and at which line of the program."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, overlap
from feedline.analysis.measure.code_places import (
    CHECKPOINT,
    COMPILE,
    program_frames,
    within_the_program,
)
from feedline.analysis.measure.code_tree import MAIN, CodeNode, is_tapped
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.measure.step_model import PeriodicStall
from feedline.analysis.measure.user_code import library_of
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.sampled_stacks import ProcessStacks

_MIN_REPEATS = 6
_MIN_SHARE = 0.03  # of the steps' time
#: Of the steps at that place of the period that take longer; and how much less often the others do.
_MIN_HITS, _MIN_CONTRAST = 0.8, 0.6
_MIN_CAPTURED = 0.25  # of all that steps take longer: with less, something else matters more
_CHANCE = 1e-3  # that steps which take longer at random look so
_WINDOW = 31  # steps, of whose times the median is what a step takes otherwise
_SCALES, _LEAST_EXCESS = 5.0, 0.1  # of the usual deviation, and of a step: longer than that
_MAD = 1.4826  # of a normal distribution: its standard deviation over this deviation
_GAPS, _CANDIDATES = 12, 48

#: A line, or a function, that takes this share of what its caller takes longer is named instead.
_MOST = 0.7
_FEWEST_SAMPLES = 6  # in steps that take longer, to name a line
_LEAST_EXPLAINED = 0.5  # of what they take longer


@dataclass(frozen=True)
class _Period:
    """Steps that take longer.

    Attributes:
        steps: from one to the next.
        at: bool [n], the steps at that place of the period.
        excess: float64 [n], ns that each step takes longer than those around it.
    """

    steps: int
    at: npt.NDArray[np.bool_]
    excess: FloatArray


def periodic_stall(
    rank: RankMetrics, mean_s: float, stages_s: dict[str, float], stacks: Sequence[ProcessStacks]
) -> PeriodicStall | None:
    """Return how much longer every nth step takes; None: no such period is seen.

    What the step waits for its input, compiling, checkpoints and garbage collections are left out,
    and so are steps in which a pass over the data begins, that save, compile or evaluate.

    Args:
        mean_s, stages_s: of the mean step.
        stacks: of the rank's processes.
    """
    if rank.steps is None or rank.main.stride > 1:  # of which step each is, is not known any more
        return None
    chosen = _usual(rank)
    numbers = step_numbers(rank)
    own = {name: ns[chosen] for name, ns in _own_stages(rank).items()}
    walls = np.sum(list(own.values()), axis=0) if own else np.zeros(int(chosen.sum()))
    period = _period(numbers[chosen], walls)
    if period is None:
        return None
    longer_s = float(np.median(period.excess[period.at])) / 1e9
    each_s = float(period.excess[period.at].mean()) / 1e9 / period.steps
    stages = _stages(own, period, each_s, stages_s)
    taken_s = sum(stages.values())
    if taken_s < _MIN_SHARE * mean_s:
        return None
    stall = PeriodicStall(period.steps, int(period.at.sum()), longer_s, taken_s, stages)
    return _with_line(stall, rank, np.flatnonzero(chosen), period, stacks)


def step_numbers(rank: RankMetrics) -> IntArray:
    """Return which step of the run each recorded one is, int64 [n]."""
    assert rank.steps is not None
    rests = np.searchsorted(rank.counted.start, rank.steps.start, "left")
    before = np.concatenate([[0], np.cumsum(rank.counted.steps)])
    return np.asarray(np.arange(len(rank.steps.start)) + before[rests])


def _own_stages(rank: RankMetrics) -> dict[str, FloatArray]:
    """Return stage -> float64 [n], ns, without what other findings explain."""
    assert rank.steps is not None
    left = {
        name: ns
        for name, ns in rank.stages.items()
        if name not in (*INPUT_STAGES, COMPILE, CHECKPOINT)
    }
    collected = rank.steps.collecting
    return {
        name: np.maximum(ns - collected[name], 0.0) if name in collected else ns
        for name, ns in left.items()
    }


def _usual(rank: RankMetrics) -> npt.NDArray[np.bool_]:
    """Mark the steps that count, and in which nothing happens that is told by itself, bool [n]."""
    steps = rank.steps
    assert steps is not None
    usual = np.arange(len(steps.start)) >= rank.first
    for name in (COMPILE, CHECKPOINT):
        if name in rank.stages:
            usual &= rank.stages[name] == 0
    evaluation = steps.boundaries.evaluation
    usual &= overlap(steps.start, steps.boundaries.end, evaluation[:, 0], evaluation[:, 1]) == 0
    ends = rank.main.of(Stage.NEXT)
    ends = ends[ends["flags"] & Flag.END != 0]["start"]
    at = steps.boundaries.step_of(np.concatenate([rank.main.of(Stage.EPOCH)["start"], ends]))
    usual[at[at >= 0]] = False
    return np.asarray(usual)


def _period(numbers: IntArray, walls: FloatArray) -> _Period | None:
    """Return the period that explains most of what steps take longer.

    Args:
        numbers: int64 [n], which steps of the run these are.
        walls: float64 [n], ns.
    """
    if len(walls) < 2 * _MIN_REPEATS:
        return None
    excess = walls - _around(walls)
    scale = _MAD * float(np.median(np.abs(excess)))
    usual = float(np.median(walls))
    longer = excess > max(_SCALES * scale, _LEAST_EXCESS * usual)
    if longer.sum() < _MIN_REPEATS:
        return None
    whole = float(excess[longer].sum())
    best: _Period | None = None
    most = _MIN_CAPTURED * whole
    for steps in _candidates(numbers[longer]):
        phases = np.bincount(numbers[longer] % steps, excess[longer])
        at = numbers % steps == int(phases.argmax())
        captured = float(excess[at].sum())
        if captured > most and _is_sure(at, longer, steps):
            best, most = _Period(steps, at, excess), captured
    return best


def _around(walls: FloatArray) -> FloatArray:
    """Return the median of the steps around each, float64 [n]."""
    if len(walls) <= _WINDOW:
        return np.full(len(walls), float(np.median(walls)))
    half = _WINDOW // 2
    middle = np.median(np.lib.stride_tricks.sliding_window_view(walls, _WINDOW), axis=1)
    return np.concatenate([np.full(half, middle[0]), middle, np.full(half, middle[-1])])


def _candidates(longer: IntArray) -> Iterator[int]:
    """Return distances between steps that take longer, the most frequent first.

    A step that takes longer by chance may lie between two of a period.
    """
    gaps = np.concatenate([longer[apart:] - longer[:-apart] for apart in (1, 2, 3)])
    values, times = np.unique(gaps[gaps >= 2], return_counts=True)
    frequent = values[np.argsort(-times, kind="stable")][:_GAPS].tolist()
    found = dict.fromkeys(frequent)
    for first, second in ((a, b) for a in frequent for b in frequent if a < b):
        found.setdefault(math.gcd(first, second))
    span = int(longer[-1] - longer[0])
    fitting = [steps for steps in found if 2 <= steps <= span / (_MIN_REPEATS - 1)]
    yield from fitting[:_CANDIDATES]


def _is_sure(at: npt.NDArray[np.bool_], longer: npt.NDArray[np.bool_], steps: int) -> bool:
    """Tell whether chance does not make steps take longer so regularly.

    It is the bound of Chernoff, for each place of each period that was tried.
    """
    number = int(at.sum())
    if number < _MIN_REPEATS or number == len(at):
        return False
    hits = float(longer[at].mean())
    others = (float(longer[~at].sum()) + 1) / (len(at) - number + 2)
    if hits < _MIN_HITS or hits - others < _MIN_CONTRAST:
        return False
    divergence = hits * math.log(hits / others)
    divergence += (1 - hits) * math.log((1 - hits) / (1 - others)) if hits < 1 else 0.0
    return math.exp(-number * divergence) * steps * _CANDIDATES < _CHANCE


def _stages(
    own: dict[str, FloatArray], period: _Period, each_s: float, stages_s: dict[str, float]
) -> dict[str, float]:
    """Return stage -> seconds of the mean step that lie in it; none has more than it takes."""
    more = {
        name: float(ns[period.at].mean()) - float(np.median(ns[~period.at]))
        for name, ns in own.items()
    }
    whole = sum(ns for ns in more.values() if ns > 0)
    parts = {name: each_s * ns / whole for name, ns in more.items() if ns > _LEAST_PART * whole}
    return {name: min(s, stages_s.get(name, 0.0)) for name, s in parts.items()}


_LEAST_PART = 0.05  # of what steps take longer: less of it in a stage is chance


def _with_line(
    stall: PeriodicStall,
    rank: RankMetrics,
    chosen: IntArray,
    period: _Period,
    stacks: Sequence[ProcessStacks],
) -> PeriodicStall:
    """Add the line of the program that takes what these steps take longer, where samples show it.

    Args:
        chosen: int64 [n], index of each step that the period is of.
    """
    assert rank.steps is not None
    kinds = np.zeros(len(rank.steps.start), np.int64)  # 1: a usual step, 2: one that takes longer
    kinds[chosen] = 1 + period.at
    (others, longer), numbers = _trees(rank, kinds, stacks)
    stall = replace(stall, looks=numbers[1])
    if numbers[1] < _FEWEST_SAMPLES or not numbers[0]:
        return stall
    each_s = float(rank.steps.wall[kinds > 0].sum()) / 1e9 / sum(numbers)  # a sample stands for
    weights = _Weights(*(each_s / int((kinds == kind).sum()) for kind in (1, 2)))
    whole = weights.more(float(numbers[1]), float(numbers[0]))
    if whole < _LEAST_EXPLAINED * stall.longer_s:
        return stall
    node, beside, taken = _deepest(longer, others, weights, whole)
    if node is None:
        return stall
    line = max(node.lines, key=lambda at: weights.more(node.lines[at], beside.lines.get(at, 0.0)))
    return replace(
        stall,
        function=node.function,
        place=f"{node.file}:{line}",
        place_share=min(taken / whole, 1.0),
        library=library_of(node, line),
    )


@dataclass(frozen=True)
class _Weights:
    """Seconds of one step that a sample stands for: of a usual step, and of a longer one."""

    usual: float
    longer: float

    def more(self, longer: float, usual: float) -> float:
        """Return by how many seconds longer steps exceed usual ones, from samples of both."""
        return longer * self.longer - usual * self.usual


def _deepest(
    node: CodeNode, others: CodeNode, weights: _Weights, whole: float
) -> tuple[CodeNode | None, CodeNode, float]:
    """Return the deepest function that takes most of what its caller takes longer.

    With the same function in usual steps, and what it takes longer, s. None: there is none.

    Args:
        node, others: the functions of longer steps, and of usual ones.
        whole: what longer steps take longer by all samples, s.
    """
    deepest: CodeNode | None = None
    left = whole
    while node.calls:
        more = {
            key: weights.more(child.seconds, _seconds(others, key))
            for key, child in node.calls.items()
        }
        key = max(more, key=lambda one: more[one])
        if more[key] < (_LEAST_EXPLAINED if deepest is None else _MOST) * left:
            break
        deepest = node = node.calls[key]
        others = others.calls.get(key, CodeNode(key))
        left = more[key]
    return deepest, others, left


def _seconds(node: CodeNode, key: tuple[str, str]) -> float:
    child = node.calls.get(key)
    return child.seconds if child is not None else 0.0


def _trees(
    rank: RankMetrics, kinds: IntArray, stacks: Sequence[ProcessStacks]
) -> tuple[list[CodeNode], list[int]]:
    """Return the program's functions in usual steps and in longer ones, and their samples.

    The seconds of a node are samples.
    """
    assert rank.steps is not None
    roots, numbers = [CodeNode(("", "")), CodeNode(("", ""))], [0, 0]
    for process in stacks:
        if process.kind != MAIN:
            continue
        for stack in process.stacks:
            at = rank.steps.boundaries.step_of(np.array(stack.moments, np.int64))
            seen = np.bincount(kinds[at[at >= 0]], minlength=3)
            if not seen[1:].any():
                continue
            frames = within_the_program(stack.frames)
            chain = program_frames(frames)
            for kind in (0, 1):
                if seen[kind + 1]:
                    roots[kind].add(chain, float(seen[kind + 1]), is_tapped(frames))
                    numbers[kind] += int(seen[kind + 1])
    return roots, numbers
