"""A call that people report again and again as slow, and how sampled stacks show it.

A sign is a frame of a library below the program's line. Calls in C leave no frame: they are known
by the text of the line, where its file is there and unchanged. The calls are in
calls_per_sample.py and calls_per_step.py.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from feedline.analysis.measure.code_places import origin
from feedline.analysis.measure.code_tree import Chain, CodeNode
from feedline.analysis.measure.source_lines import SourceLines, parsed
from feedline.profiler.store.sampled_stacks import StackFrame

_MOST = 0.5  # of a function's time that a call takes, at least, to be told of it


@dataclass(frozen=True)
class Sign:
    """A frame of a library.

    Attributes:
        owner: the library.
        file: pattern of its file, below the library's folder.
        function: pattern of the function's name.
    """

    owner: str
    file: str = ".*"
    function: str = ".*"

    def fits(self, frame: StackFrame) -> bool:
        """Return whether it is this frame."""
        whose = origin(frame.file)
        return (
            whose.owner == self.owner
            and re.fullmatch(self.file, whose.tail) is not None
            and re.fullmatch(self.function, frame.function.rpartition(".")[2]) is not None
        )


@dataclass(frozen=True)
class KnownCall:
    """A call that is slow where it is made for each sample, or in each step.

    Attributes:
        name: stable name.
        says: what is slow about it: a sentence of at most 22 words.
        fix: what to do instead: at most 15 words, without a full stop.
        report: where people report it.
        signs: frames, any of which shows it.
        text: pattern of a line that makes it without a frame; empty: none does.
        unless: frames below the same line with which it is another call.
        on_gpu: it is slow only where a GPU computes.
        with_loop: what a loop over its result does counts as its time.
        statement: pattern that the statement of the program which makes it has to have as well;
            empty: any has.
        function: the same of the function that the statement is in.
        in_loop: whether it counts only in ``for`` loops.
        in_graph: the backward pass goes through what it computes, and takes less with the fix too.
        left: share (0 to 1) of its time that about remains with the fix: what benchmarks/slow_calls
            measured, or how often the fix says. None: neither is known.
    """

    name: str
    says: str
    fix: str
    report: str
    signs: tuple[Sign, ...] = ()
    text: str = ""
    unless: tuple[Sign, ...] = ()
    on_gpu: bool = False
    with_loop: bool = False
    statement: str = ""
    function: str = ""
    in_loop: bool = False
    in_graph: bool = False
    left: float | None = None

    @property
    def needs_source(self) -> bool:
        """Whether a frame alone does not show it."""
        return bool(self.statement or self.function or self.in_loop)


Calls = tuple[KnownCall, ...]


@lru_cache(maxsize=65536)
def of_frames(calls: Calls, below: Chain) -> KnownCall | None:
    """Return the call among a line's library frames, the outermost first; None: there is none."""
    for frame in below:
        for call in calls:
            if any(sign.fits(frame) for sign in call.signs) and not any(
                sign.fits(other) for sign in call.unless for other in below
            ):
                return call
    return None


@lru_cache(maxsize=65536)
def _of_text(calls: Calls, text: str) -> KnownCall | None:
    """Return the call that a line makes, by its text; None: there is none."""
    if not text:
        return None
    return next((call for call in calls if call.text and re.search(call.text, text)), None)


@dataclass(frozen=True)
class CallFound:
    """A known call in a function or below it.

    Attributes:
        seconds: that it takes there.
        file, line: that make it, where it takes most.
    """

    call: KnownCall
    seconds: float
    file: str
    line: int


def known_call(
    node: CodeNode, calls: Calls, source: SourceLines, most: float = _MOST
) -> CallFound | None:
    """Return the known call that takes most of a function's time; None.

    None takes ``most`` (0 to 1) of what it does itself, or of its operations of libraries that
    are stages of their own.
    """
    sums: dict[KnownCall, dict[tuple[str, int], float]] = {}
    for call, file, line, seconds in _calls_in(node, calls, source):
        lines = sums.setdefault(call, {})
        lines[file, line] = lines.get((file, line), 0.0) + seconds
    best = max(sums, key=lambda call: sum(sums[call].values()), default=None)
    tapped_s = node.all_tapped_s
    whole_s = max(node.seconds - tapped_s, tapped_s)
    if best is None or sum(sums[best].values()) < most * whole_s:
        return None
    file, line = max(sums[best], key=lambda place: sums[best][place])
    return CallFound(best, sum(sums[best].values()), file, line)


def _calls_in(
    node: CodeNode, calls: Calls, source: SourceLines
) -> Iterator[tuple[KnownCall, str, int, float]]:
    for below in node.under():
        for line, chains in below.below.items():
            for chain, seconds in chains.items():
                call = of_frames(calls, chain) if chain else None
                if call is not None and _is_made(call, below, source, line):
                    yield call, below.file, line, seconds
                elif chain and (around := _around(below, calls, source, line)) is not None:
                    yield around[0], below.file, around[1], seconds
        for line, seconds in below.in_c.items():
            call = _of_text(calls, source(below.file, line, below.function))
            if call is not None and _is_made(call, below, source, line):
                yield call, below.file, line, seconds
            elif (around := _around(below, calls, source, line)) is not None:
                yield around[0], below.file, around[1], seconds


def _is_made(call: KnownCall, node: CodeNode, source: SourceLines, line: int) -> bool:
    """Tell whether what is around a line fits a call as well."""
    if not call.needs_source:
        return True
    text = source.text(node.file, node.function)
    statement, function = _texts_around(text, line)
    return (
        re.search(call.statement, statement) is not None
        and re.search(call.function, function) is not None
        and (not call.in_loop or in_loop(source, node, line))
    )


@lru_cache(maxsize=4096)
def _texts_around(text: str, line: int) -> tuple[str, str]:
    """Return the statement that a line is of, in one line, and the text of its function.

    Empty where the line is in none, or the text is not there.
    """
    tree, lines = parsed(text), text.splitlines()
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    simple = [node for node in around if not hasattr(node, "body")]
    of_statement, of_function = (
        lines[found[-1].lineno - 1 : found[-1].end_lineno] if found else []
        for found in (simple, functions)
    )
    return " ".join(one.strip() for one in of_statement), "\n".join(of_function)


def _around(
    node: CodeNode, calls: Calls, source: SourceLines, line: int
) -> tuple[KnownCall, int] | None:
    """Return the call whose result a loop around a line goes through, and the line of the loop."""
    going = tuple(call for call in calls if call.with_loop)
    if not going:
        return None
    for first, last in _loops(source.text(node.file, node.function)):
        if first < line <= last:
            call = _of_text(going, source(node.file, first, node.function))
            if call is not None:
                return call, first
    return None


def in_loop(source: SourceLines, node: CodeNode, line: int) -> bool:
    """Return whether a line of a function is in a ``for`` loop of it; False: its source is not there."""
    return any(
        first < line <= last for first, last in _loops(source.text(node.file, node.function))
    )


@lru_cache(maxsize=256)
def _loops(text: str) -> tuple[tuple[int, int], ...]:
    """Return the first and last lines of the ``for`` loops of a file's text."""
    tree = parsed(text)
    return tuple(
        (loop.lineno, loop.end_lineno or loop.lineno)
        for loop in (ast.walk(tree) if tree is not None else ())
        if isinstance(loop, ast.For)
    )
