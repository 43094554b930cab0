"""The program's functions as a tree, with the time that sampled stacks stand for."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from feedline.analysis.measure.code_frames import CodeFrame
from feedline.profiler.store.sampled_stacks import SampledStack, StackFrame

_Z = 1.96  # of a 95 % interval
_NONE = 1e-9  # seconds: what is left of a difference of the same sums


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


Chain = tuple[StackFrame, ...]
Key = tuple[str, str]  # file and name of a function
_K = TypeVar("_K")


def add_to(sums: dict[_K, float], key: _K, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds


def _sums(first: Mapping[_K, float], second: Mapping[_K, float]) -> dict[_K, float]:
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in {**first, **second}}


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
