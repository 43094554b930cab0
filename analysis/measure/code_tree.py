"""Sampled stacks as trees of the program's functions: one for each kind of process and place."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.code_places import (
    EVALUATION,
    FORWARD,
    INPUT,
    LOGGING,
    LOSS,
    MAKING,
    OPERATIONS,
    OTHER,
    SAMPLER,
    START,
    TRAINING,
    WAIT,
    CodeFrame,
    besides,
    in_one_body,
    is_recording,
    logs,
    origin,
    program_frames,
    standing,
    within_the_program,
)
from feedline.analysis.measure.source_lines import SourceLines
from feedline.profiler.masks import FEEDLINE
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack, StackFrame

#: Of either: feedline's own work for the recording.
_RECORDING = "recording"

_Z = 1.96  # of a 95 % interval
_NONE = 1e-9  # seconds: what is left of a difference of the same sums
Chain = tuple[StackFrame, ...]
Key = tuple[str, str]  # file and name of a function
_K = TypeVar("_K")
MAIN, WORKER = "main", "worker"
_LOOP = "loop"  # phase of a sample
#: Of what a loop's function contains of all forward and backward passes and updates.
_MOST_OF_STEPS = 0.5
_OF_THE_PROGRAM = (OTHER, LOGGING, EVALUATION, INPUT)  # all that happens there is the program's own
_FEWEST_STEPS = 10  # samples of them, from which on a function without any does not train
_MOST_QUEUED = 0.6  # of the time: what waits longer is sampled no worse
#: Functions that take less of a stage are no rows of their own.
_MIN_ROW = 0.01


@dataclass
class Weight:
    """Samples, and the wall time that they stand for.

    Attributes:
        seconds: that they stand for.
        squares: the squares of what each stands for, summed.
        spread: times the variance that independent samples have. Where threads wait for CPUs, so
            does what samples them, and then it finds threads that run too seldom.
    """

    seconds: float = 0.0
    squares: float = 0.0
    spread: float = 1.0

    def add(self, stack: SampledStack) -> None:
        self.seconds += stack.seconds
        self.squares += stack.seconds**2 / max(stack.samples, 1)

    def join(self, other: "Weight") -> None:
        self.seconds += other.seconds
        self.squares += other.squares
        self.spread = max(self.spread, other.spread)

    @property
    def number(self) -> float:
        """How many equal samples these are worth (Kish, Survey Sampling, 1965)."""
        return self.seconds**2 / self.squares if self.squares else 0.0


@dataclass
class CodeNode:
    """A function of the program, as its caller calls it.

    Attributes:
        key: file and name.
        seconds: in it and in what it calls.
        own_s: in none of the program's functions that it calls.
        tapped_s: part of ``own_s`` in operations of libraries that are stages of their own.
        all_tapped_s: the same of ``seconds``.
        lines: line -> seconds with what it calls.
        below: line -> libraries' frames that it called -> seconds.
        in_c: line -> seconds in no frame below it: in the line itself, or in code that is not
            Python.
        calls: the program's functions that it calls.
        called_at: line of the caller -> seconds.
    """

    key: Key
    seconds: float = 0.0
    own_s: float = 0.0
    tapped_s: float = 0.0
    all_tapped_s: float = 0.0
    lines: dict[int, float] = field(default_factory=dict)
    below: dict[int, dict[Chain, float]] = field(default_factory=dict)
    in_c: dict[int, float] = field(default_factory=dict)
    calls: dict[Key, "CodeNode"] = field(default_factory=dict)
    called_at: dict[int, float] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.key[0]

    @property
    def function(self) -> str:
        return self.key[1]

    @property
    def line(self) -> int:
        """The line that takes most of it."""
        return max(self.lines, key=lambda line: (self.lines[line], -line), default=0)

    @property
    def place(self) -> str:
        """``data.py:88``."""
        return f"{self.file}:{self.line}"

    def own_lines(self) -> dict[int, float]:
        """Return line -> seconds in none of the program's functions that it calls."""
        own = dict(self.lines)
        for node in self.calls.values():
            for line, seconds in node.called_at.items():
                add_to(own, line, -seconds)
        return {line: seconds for line, seconds in own.items() if seconds > _NONE}

    def under(self) -> Iterator["CodeNode"]:
        """Return it, and all that it calls."""
        yield self
        for node in self.calls.values():
            yield from node.under()

    def without(self, names: Collection[str]) -> "CodeNode":
        """Return it without functions of these names, and without what these call."""
        if not names:
            return self
        gone = [node for node in self.calls.values() if node.function in names]
        kept = {
            key: node.without(names)
            for key, node in self.calls.items()
            if node.function not in names
        }
        lines = dict(self.lines)
        for node in gone:
            for line, seconds in node.called_at.items():
                add_to(lines, line, -seconds)
        before_s = sum(node.seconds for node in self.calls.values())
        after_s = sum(node.seconds for node in kept.values())
        return replace(self, calls=kept, lines=lines, seconds=self.seconds - before_s + after_s)

    def joined(self, other: "CodeNode") -> "CodeNode":
        """Return this function with what it takes in another tree."""
        calls = dict(self.calls)
        for key, node in other.calls.items():
            calls[key] = calls[key].joined(node) if key in calls else node
        below = dict(self.below)
        for line, chains in other.below.items():
            below[line] = _sums(below.get(line, {}), chains)
        return CodeNode(
            self.key,
            self.seconds + other.seconds,
            self.own_s + other.own_s,
            self.tapped_s + other.tapped_s,
            self.all_tapped_s + other.all_tapped_s,
            _sums(self.lines, other.lines),
            below,
            _sums(self.in_c, other.in_c),
            calls,
            _sums(self.called_at, other.called_at),
        )

    def add(self, chain: Sequence[CodeFrame], seconds: float, tapped: bool) -> None:
        """Add a stack below this node."""
        node, caller = self, 0
        node.seconds += seconds
        node.all_tapped_s += seconds * tapped
        for frame in chain:
            node = node.calls.setdefault(frame.key, CodeNode(frame.key))
            node.seconds += seconds
            node.all_tapped_s += seconds * tapped
            add_to(node.lines, frame.line, seconds)
            add_to(node.below.setdefault(frame.line, {}), frame.below, seconds)
            add_to(node.called_at, caller, seconds)
            caller = frame.line
        if chain and not chain[-1].below:
            add_to(node.in_c, chain[-1].line, seconds)
        node.own_s += seconds
        node.tapped_s += seconds * tapped


@dataclass
class PlaceTree:
    """The program's functions in one place.

    Attributes:
        kind: main or worker.
        place: dataset, collate, forward, ... (code_places.py).
        weight: all samples there.
        untapped_s: of them, outside operations of libraries that are stages of their own.
        root: above the functions. Where a place has none of its own inside, such as waiting, they
            are those of the loop down to the line that it is called in.
        inside: above those that really are inside of the place.
    """

    kind: str
    place: str
    weight: Weight = field(default_factory=Weight)
    untapped_s: float = 0.0
    root: CodeNode = field(default_factory=lambda: CodeNode(("", "")))
    inside: CodeNode = field(default_factory=lambda: CodeNode(("", "")))


@dataclass
class _Besides:
    """What torch does besides, such as a forward pass that a backward pass repeats.

    Attributes:
        places: place of the main process -> seconds.
        lines: file and line of the program that it is called from -> seconds.
    """

    places: dict[str, float] = field(default_factory=dict)
    lines: dict[tuple[str, int], float] = field(default_factory=dict)


@dataclass
class SampledCode:
    """What all processes of a rank were doing while steps ran.

    Attributes:
        places: (kind, place) -> its functions.
        besides: what torch does besides in the main process (code_places.py) -> where.
        loop: key of the function of the program that contains the training loop; None: unknown.
        refused: why processes were not sampled.
        source: reads lines of the program.
        makers: names of the program's functions that make batches without a loader.
        spread: kind of process -> of its samples (``Weight``).
    """

    places: dict[tuple[str, str], PlaceTree] = field(default_factory=dict)
    besides: dict[str, _Besides] = field(default_factory=dict)
    loop: Key | None = None
    refused: list[str] = field(default_factory=list)
    source: SourceLines = field(default_factory=SourceLines)
    makers: frozenset[str] = frozenset()
    spread: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        processes: Iterable[ProcessStacks],
        source: SourceLines | None = None,
        evaluation: IntArray | None = None,
        makers: frozenset[str] = frozenset(),
        since: int = 0,
        queued: Mapping[str, float] | None = None,
    ) -> "SampledCode | None":
        """Return what is known from sampled stacks; None without any.

        Args:
            source: reads lines of the program; None: they are not read.
            evaluation: int64 [n, 2], ns, disjoint and sorted: when the program only inferred. None:
                not known.
            makers: names of the program's functions that make batches without a loader.
            since: ns, when the first step begins that the mean step is of.
            queued: kind of process -> share (0 to 1) of the time in which it waits for a CPU.
        """
        processes = list(processes)
        refused = sorted({one.refused for one in processes if one.refused})
        spread = {
            kind: 1 / (1 - min(share, _MOST_QUEUED)) ** 2 for kind, share in (queued or {}).items()
        }
        code = cls(refused=refused, source=source or SourceLines(), makers=makers, spread=spread)
        seen = [
            _SeenStack.of(process.kind, part, evaluates)
            for process in processes
            for stack in process.stacks
            if stack.phase == _LOOP and stack.thread == "main"
            for part, evaluates in _parts(
                stack, evaluation if process.kind == MAIN else None, since
            )
            if part.samples > 0
        ]
        if not seen:
            return None
        of_main = [one for one in seen if one.kind == MAIN and not one.evaluates]
        code.loop = _loop_of(of_main)
        infers = _evaluations(of_main, code.loop)
        for one in seen:
            code._add(one, infers)
        return code

    def _add(self, seen: "_SeenStack", infers: frozenset[Key]) -> None:
        stack, place = seen.stack, seen.place
        frames = seen.frames[seen.inside :]
        inside = program_frames(frames)
        chain = inside
        if is_recording(seen.frames):
            place, chain = _RECORDING, []
        elif seen.evaluates:
            place, chain = EVALUATION, self._below_loop(seen)
        elif seen.kind == MAIN and place not in MAKING:
            place, chain = self._in_main(seen, inside, infers)
            self._add_besides(seen, place)
        tree = self.places.setdefault((seen.kind, place), PlaceTree(seen.kind, place))
        tree.weight.spread = self.spread.get(seen.kind, 1.0)
        tree.weight.add(stack)
        tapped = is_tapped(frames)
        tree.untapped_s += stack.seconds * (not tapped)
        tree.root.add(chain, stack.seconds, tapped)
        if inside or place in _OF_THE_PROGRAM:
            tree.inside.add(chain, stack.seconds, tapped)

    def _add_besides(self, seen: "_SeenStack", place: str) -> None:
        found = besides(seen.frames)
        if found is None:
            return
        name, at = found
        there, seconds = self.besides.setdefault(name, _Besides()), seen.stack.seconds
        add_to(there.places, place, seconds)
        if callers := program_frames(seen.frames[:at]):
            add_to(there.lines, (callers[-1].file, callers[-1].line), seconds)

    def _below_loop(self, seen: "_SeenStack") -> list[CodeFrame]:
        """Return the program's functions below the training loop; without any, the innermost."""
        own = [at for at, one in enumerate(seen.program) if self._is_loop(one)]
        below = seen.program[own[-1] + 1 :] if own else seen.program
        return below or seen.program[-1:]

    def _is_loop(self, frame: CodeFrame) -> bool:
        return self.loop is not None and in_one_body(frame.key, self.loop)

    def _in_main(
        self, seen: "_SeenStack", inside: list[CodeFrame], infers: frozenset[Key]
    ) -> tuple[str, list[CodeFrame]]:
        """Return the place, and the functions below what tells it.

        Without any, those of the loop down to its call.
        """
        place, keys = seen.place, [frame.key for frame in seen.program]
        evaluates = next((at for at, key in enumerate(keys) if key in infers), None)
        if evaluates is not None:
            return EVALUATION, seen.program[evaluates:]
        if inside:
            return place, inside
        makes = next((at for at, key in enumerate(keys) if key[1] in self.makers), None)
        if place == OTHER and makes is not None:
            return INPUT, seen.program[makes:]
        since = keys.index(self.loop) if self.loop in keys else 0
        if place == OTHER and seen.program and logs(seen.program[-1].below):
            place = LOGGING
        return place, seen.program[since:]

    @property
    def making(self) -> Weight:
        """Samples in which samples and batches were made, by workers or by the main process."""
        whole = Weight()
        for kind, place in self.maker_places:
            whole.join(self.places[kind, place].weight)
        return whole

    @property
    def maker_places(self) -> list[tuple[str, str]]:
        """The places in which batches are made: those of workers, if they were seen to."""
        found = [key for key in self.places if key[1] in MAKING]
        of_workers = [key for key in found if key[0] == WORKER]
        return of_workers or found

    @property
    def main_s(self) -> float:
        """Seconds of the main process."""
        return sum(tree.weight.seconds for (kind, _), tree in self.places.items() if kind == MAIN)


def is_tapped(frames: Sequence[StackFrame]) -> bool:
    """Return whether frames are in an operation that feedline records as a stage of its own."""
    return any(
        whose.owner == FEEDLINE and whose.tail.startswith(OPERATIONS)
        for whose in (origin(frame.file) for frame in frames)
    )


@dataclass(frozen=True)
class _SeenStack:
    """A stack, and what its frames say.

    Attributes:
        kind: of its process.
        frames: within the program.
        place, inside: where it stands, and the first frame inside of what tells so.
        program: the program's functions in all of it; of the main process only.
        evaluates: it was taken while the program only inferred, as records of forward passes show.
    """

    kind: str
    stack: SampledStack
    frames: Sequence[StackFrame]
    place: str
    inside: int
    program: list[CodeFrame]
    evaluates: bool

    @classmethod
    def of(cls, kind: str, stack: SampledStack, evaluates: bool) -> "_SeenStack":
        frames = within_the_program(stack.frames)
        stood = standing(frames)
        program = program_frames(frames) if kind == MAIN else []
        return cls(kind, stack, frames, stood.place, stood.inside, program, evaluates)


def _parts(
    stack: SampledStack, evaluation: IntArray | None, since: int
) -> Iterator[tuple[SampledStack, bool]]:
    """Yield what of a stack was taken outside of evaluation, and in it.

    Of steps before ``since``, in which caches warm up, nothing is told.
    """
    moments = np.array(stack.moments, np.int64)
    if evaluation is None or len(moments) != stack.samples:
        yield stack, False
        return
    inside = holds(evaluation, moments)
    for evaluates in (False, True):
        chosen = moments[(inside == evaluates) & (evaluates | (moments >= since))]
        seconds = stack.seconds * len(chosen) / stack.samples if stack.samples else 0.0
        part = replace(stack, samples=len(chosen), seconds=seconds, moments=tuple(chosen.tolist()))
        yield part, evaluates


def _loop_of(seen: Sequence[_SeenStack]) -> Key | None:
    """Return the program's innermost function with most backward passes and updates in it.

    Where none were seen, it has most forward passes, or waits for batches.
    """
    for places in (TRAINING, (FORWARD, LOSS), (WAIT,)):
        chosen = [one for one in seen if one.place in places]
        if chosen:
            return _innermost(chosen)
    return None


def _innermost(seen: Sequence[_SeenStack]) -> Key | None:
    """Return the innermost function outside of their places that most of these stacks share."""
    taken: dict[Key, float] = {}
    depth: dict[Key, int] = {}
    whole = sum(one.stack.seconds for one in seen)
    for one in seen:
        for at, frame in enumerate(program_frames(one.frames[: one.inside])):
            add_to(taken, frame.key, one.stack.seconds)
            depth[frame.key] = max(depth.get(frame.key, 0), at)
    often = [key for key, seconds in taken.items() if seconds > _MOST_OF_STEPS * whole]
    return max(often, key=lambda key: depth[key], default=None)


def _evaluations(seen: Sequence[_SeenStack], loop: Key | None) -> frozenset[Key]:
    """Return functions outside the training loop that iterate over a loader without training.

    None where too few backward passes were seen to tell. What runs inside of the loader, such as a
    sampler, does not iterate over it.
    """
    does: dict[Key, dict[str, int]] = {}
    trained = 0
    for one in seen:
        of_loader = one.place in (*MAKING, WAIT, START, SAMPLER)
        place = WAIT if of_loader else one.place
        trained += one.stack.samples * (place in TRAINING)
        for frame in program_frames(one.frames[: one.inside]) if of_loader else one.program:
            places = does.setdefault(frame.key, {})
            places[place] = places.get(place, 0) + one.stack.samples
    if trained < _FEWEST_STEPS:
        return frozenset()
    return frozenset(
        key
        for key, places in does.items()
        if key != loop
        and min(places.get(FORWARD, 0), places.get(WAIT, 0)) > 0
        and not places.keys() & set(TRAINING)
    )


def functions_of(
    code: SampledCode, place: str, kind: str | None = None
) -> list[tuple[str, str, float]]:
    """Return the program's functions in a place, without what they call, longest first.

    Each is its name, its file and line, and its share (0 to 1) of the place. Operations of
    libraries that are stages of their own are no part of it.

    Args:
        kind: of the process; None: of those that make batches.
    """
    if kind is not None:
        keys = [(kind, place)]
    else:
        keys = [key for key in code.maker_places if key[1] == place]
    sums: dict[Key, float] = {}
    lines: dict[Key, CodeNode] = {}
    whole_s = 0.0
    for tree in (code.places[key] for key in keys if key in code.places):
        whole_s += tree.untapped_s
        for node in (below for child in tree.inside.calls.values() for below in child.under()):
            add_to(sums, node.key, node.own_s - node.tapped_s)
            lines.setdefault(node.key, node)
    rows: dict[str, tuple[str, float]] = {}
    for key, seconds in sums.items():
        share = seconds / whole_s if whole_s else 0.0
        if share >= _MIN_ROW:
            place_of, before = rows.get(key[1], (lines[key].place, 0.0))
            rows[key[1]] = place_of, before + share
    ranked = sorted(rows, key=lambda name: -rows[name][1])
    return [(name, *rows[name]) for name in ranked]


def share_of(part: float, whole: Weight) -> tuple[float, float, float]:
    """Return a share (0 to 1) of samples.

    With its 95 % interval (Wilson, J. Am. Stat. Assoc. 22, 1927).

    Args:
        part: seconds of it.
        whole: what it is a part of.
    """
    if whole.seconds <= 0:
        return 0.0, 0.0, 1.0
    share, number = min(1.0, part / whole.seconds), whole.number / whole.spread
    middle = share + _Z**2 / (2 * number)
    half = _Z * math.sqrt(share * (1 - share) / number + _Z**2 / (4 * number**2))
    scale = 1 + _Z**2 / number
    return share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def add_to(sums: dict[_K, float], key: _K, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds


def _sums(first: Mapping[_K, float], second: Mapping[_K, float]) -> dict[_K, float]:
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in {**first, **second}}
