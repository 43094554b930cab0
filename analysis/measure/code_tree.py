"""Sampled stacks as trees of the program's functions: one for each kind of process and place."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from feedline.analysis.measure.code_frames import (
    OPERATIONS,
    CodeFrame,
    origin,
    program_frames,
    within_the_program,
)
from feedline.analysis.measure.code_places import (
    EVALUATION,
    FORWARD,
    LOGGING,
    LOSS,
    MAKING,
    OTHER,
    RECORDING,
    WAIT,
    is_recording,
    logs,
    standing,
)
from feedline.analysis.measure.source_lines import SourceLines
from feedline.profiler.masks import FEEDLINE
from feedline.profiler.store.stacks import ProcessStacks, SampledStack, StackFrame

MAIN, WORKER = "main", "worker"
_LOOP = "loop"  # phase of a sample
_Z = 1.96  # of a 95 % interval
#: Of what a loop's function contains of all forward and backward passes and updates.
_MOST_OF_STEPS = 0.5
_STEPS = ("backward", "optimizer")
_OF_THE_PROGRAM = (OTHER, LOGGING, EVALUATION)  # all that happens there is the program's own
_FEWEST_STEPS = 10  # samples of them, from which on a function without any does not train


@dataclass
class Weight:
    """Samples, and the wall time that they stand for.

    Attributes:
        seconds: that they stand for.
        squares: the squares of what each stands for, summed.
    """

    seconds: float = 0.0
    squares: float = 0.0

    def add(self, stack: SampledStack) -> None:
        self.seconds += stack.seconds
        self.squares += stack.seconds**2 / max(stack.samples, 1)

    @property
    def number(self) -> float:
        """How many equal samples these are worth (Kish, Survey Sampling, 1965)."""
        return self.seconds**2 / self.squares if self.squares else 0.0


def share_of(part: float, whole: Weight) -> tuple[float, float, float]:
    """Return a share (0 to 1) of samples.

    With its 95 % interval (Wilson, J. Am. Stat. Assoc. 22, 1927).

    Args:
        part: seconds of it.
        whole: what it is a part of.
    """
    if whole.seconds <= 0:
        return 0.0, 0.0, 1.0
    share, number = min(1.0, part / whole.seconds), whole.number
    middle = share + _Z**2 / (2 * number)
    half = _Z * math.sqrt(share * (1 - share) / number + _Z**2 / (4 * number**2))
    scale = 1 + _Z**2 / number
    return share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


Chain = tuple[StackFrame, ...]
Key = tuple[str, str]  # file and name of a function
K = TypeVar("K")


def _add(sums: dict[K, float], key: K, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds


def _sums(first: Mapping[K, float], second: Mapping[K, float]) -> dict[K, float]:
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in {**first, **second}}


@dataclass
class CodeNode:
    """A function of the program, as its caller calls it.

    Attributes:
        key: file and name.
        seconds: in it and in what it calls.
        own_s: in none of the program's functions that it calls.
        tapped_s: part of ``own_s`` in operations of libraries that are stages of their own.
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

    def under(self) -> Iterator["CodeNode"]:
        """Return it, and all that it calls."""
        yield self
        for node in self.calls.values():
            yield from node.under()

    def without(self, names: Collection[str]) -> "CodeNode":
        """Return it without functions of these names, and without what these call."""
        gone = [node for node in self.calls.values() if node.function in names]
        kept = {
            key: node.without(names)
            for key, node in self.calls.items()
            if node.function not in names
        }
        lines = dict(self.lines)
        for node in gone:
            for line, seconds in node.called_at.items():
                _add(lines, line, -seconds)
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
        for frame in chain:
            node = node.calls.setdefault(frame.key, CodeNode(frame.key))
            node.seconds += seconds
            _add(node.lines, frame.line, seconds)
            _add(node.below.setdefault(frame.line, {}), frame.below, seconds)
            _add(node.called_at, caller, seconds)
            caller = frame.line
        if chain and not chain[-1].below:
            _add(node.in_c, chain[-1].line, seconds)
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
class SampledCode:
    """What all processes of a rank were doing while steps ran.

    Attributes:
        places: (kind, place) -> its functions.
        loop: key of the function of the program that contains the training loop; None: unknown.
        refused: why processes were not sampled.
        source: reads lines of the program.
    """

    places: dict[tuple[str, str], PlaceTree] = field(default_factory=dict)
    loop: Key | None = None
    refused: list[str] = field(default_factory=list)
    source: SourceLines = field(default_factory=SourceLines)

    @classmethod
    def of(
        cls, processes: Iterable[ProcessStacks], source: SourceLines | None = None
    ) -> "SampledCode | None":
        """Return what is known from sampled stacks; None without any.

        Args:
            source: reads lines of the program; None: they are not read.
        """
        processes = list(processes)
        refused = sorted({one.refused for one in processes if one.refused})
        code = cls(refused=refused, source=source or SourceLines())
        stacks = [
            (process.kind, replace(stack, frames=tuple(within_the_program(stack.frames))))
            for process in processes
            for stack in process.stacks
            if stack.phase == _LOOP and stack.thread == "main" and stack.samples > 0
        ]
        if not stacks:
            return None
        of_main = [stack for kind, stack in stacks if kind == MAIN]
        code.loop = _loop_of(of_main)
        infers = _evaluations(of_main, code.loop)
        for kind, stack in stacks:
            code._add(kind, stack, infers)
        return code

    def _add(self, kind: str, stack: SampledStack, infers: frozenset[Key]) -> None:
        stood = standing(stack.frames)
        place, inside = stood.place, program_frames(stack.frames[stood.inside :])
        chain = inside
        if is_recording(stack.frames):
            place, chain = RECORDING, []
        elif kind == MAIN and place not in MAKING:
            place, chain = self._in_main(stack, place, inside, infers)
        tree = self.places.setdefault((kind, place), PlaceTree(kind, place))
        tree.weight.add(stack)
        tapped = is_tapped(stack.frames[stood.inside :])
        tree.untapped_s += stack.seconds * (not tapped)
        tree.root.add(chain, stack.seconds, tapped)
        if inside or place in _OF_THE_PROGRAM:
            tree.inside.add(chain, stack.seconds, tapped)

    def _in_main(
        self,
        stack: SampledStack,
        place: str,
        inside: list[CodeFrame],
        infers: frozenset[Key],
    ) -> tuple[str, list[CodeFrame]]:
        """Return the place, and the functions below what tells it.

        Without any, those of the loop down to its call.
        """
        whole = program_frames(stack.frames)
        keys = [frame.key for frame in whole]
        evaluates = next((at for at, key in enumerate(keys) if key in infers), None)
        if evaluates is not None:
            return EVALUATION, whole[evaluates:]
        if inside:
            return place, inside
        since = keys.index(self.loop) if self.loop in keys else 0
        if place == OTHER and whole and logs(whole[-1].below):
            place = LOGGING
        return place, whole[since:]

    @property
    def making(self) -> Weight:
        """Samples in which samples and batches were made, by workers or by the main process."""
        whole = Weight()
        for kind, place in self.maker_places:
            weight = self.places[kind, place].weight
            whole.seconds += weight.seconds
            whole.squares += weight.squares
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


def _loop_of(stacks: Sequence[SampledStack]) -> Key | None:
    """Return the program's innermost function with most backward passes and updates in it.

    Where none were seen, it has most forward passes, or waits for batches.
    """
    stood = [(stack, standing(stack.frames)) for stack in stacks]
    for places in (_STEPS, (FORWARD, LOSS), (WAIT,)):
        chosen = [(stack, where.inside) for stack, where in stood if where.place in places]
        if chosen:
            return _innermost(chosen)
    return None


def _innermost(stacks: Sequence[tuple[SampledStack, int]]) -> Key | None:
    """Return the innermost function that most of these stacks share outside of an index."""
    seen: dict[Key, float] = {}
    depth: dict[Key, int] = {}
    whole = sum(stack.seconds for stack, _ in stacks)
    for stack, inside in stacks:
        for at, frame in enumerate(program_frames(stack.frames[:inside])):
            _add(seen, frame.key, stack.seconds)
            depth[frame.key] = max(depth.get(frame.key, 0), at)
    often = [key for key, seconds in seen.items() if seconds > _MOST_OF_STEPS * whole]
    return max(often, key=lambda key: depth[key], default=None)


def _evaluations(stacks: Sequence[SampledStack], loop: Key | None) -> frozenset[Key]:
    """Functions below or beside the training's that go through a loader and infer.

    And never train; none where too few backward passes were seen to tell.
    """
    does: dict[Key, dict[str, int]] = {}
    trained = 0
    for stack in stacks:
        stood = standing(stack.frames)
        place = WAIT if stood.place in (*MAKING, "epoch_start", "sampler") else stood.place
        trained += stack.samples * (place in _STEPS)
        for frame in program_frames(stack.frames):
            places = does.setdefault(frame.key, {})
            places[place] = places.get(place, 0) + stack.samples
    if trained < _FEWEST_STEPS:
        return frozenset()
    return frozenset(
        key
        for key, places in does.items()
        if key != loop
        and min(places.get(FORWARD, 0), places.get(WAIT, 0)) > 0
        and not places.keys() & set(_STEPS)
    )


#: Functions that take less of a stage are no rows of their own.
_MIN_ROW = 0.01


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
            _add(sums, node.key, node.own_s - node.tapped_s)
            lines.setdefault(node.key, node)
    rows: dict[str, tuple[str, float]] = {}
    for key, seconds in sums.items():
        share = seconds / whole_s if whole_s else 0.0
        if share >= _MIN_ROW:
            place_of, before = rows.get(key[1], (lines[key].place, 0.0))
            rows[key[1]] = place_of, before + share
    ranked = sorted(rows, key=lambda name: -rows[name][1])
    return [(name, *rows[name]) for name in ranked]
