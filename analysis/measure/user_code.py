"""What lines of the program take, as reports tell it: made from the trees of sampled stacks."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.code_places import (
    EVALUATION,
    IDLE,
    LOGGING,
    OTHER,
    TRAINING,
    CodeFrame,
    called,
    in_one_body,
    is_line_of_module,
    program_frames,
    standing,
    within_the_program,
)
from feedline.analysis.measure.code_tree import (
    MAIN,
    CodeNode,
    PlaceTree,
    SampledCode,
    Weight,
    share_of,
)
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack

#: Of its process's time: functions that take less are not told, nor are lines.
_TOLD = 0.01
_MOST_LINES = 5
_MOST_OWN = 8  # functions of the loop
_NEARLY_ALL = 0.95
_FEWEST = 8  # samples of making batches, or of the loop's own code, that are worth shares
_FEWEST_EVALUATING = 5  # samples in evaluations
_MOST_AT_LINE = 0.5  # of these: evaluations at several lines have none that is told


@dataclass(frozen=True)
class CodeLine:
    """A line of a function.

    Attributes:
        line: Its number.
        share: Share (0 to 1) of what the function's share is of. Unit: 1.
        library: The library's function that the line mostly calls; empty: none.
    """

    line: int
    share: float
    library: str = ""


@dataclass(frozen=True)
class UserFunction:
    """A function of the program, where its caller calls it.

    Attributes:
        kind: Process that it runs in: worker or main.
        place: Part of the pipeline. Of making batches: dataset, collate. Of the main process:
            wait, input (what makes batches without a loader), forward, loss, backward, optimizer,
            checkpoint, logging, evaluation or other (the loop's own lines).
        function: Its name.
        file: Its file.
        line: The line of it that takes most.
        share: Share (0 to 1) of making a sample; in other places of the step, in evaluation of all
            that the main process did. With what it calls. Unit: 1.
        low: Lower end of its 95 % interval. Unit: 1.
        high: Upper end. Unit: 1.
        own_share: The part of share that lies in none of the program's functions that it calls.
            Unit: 1.
        seconds_per_step: What it takes of one process, per step. Unit: s. None: not known.
        caller: The function and line that call it; empty: a library does.
        depth: How many of the program's functions are above it. The list is a tree, each function
            followed by those that it calls.
        library: The library's function that it mostly calls directly; empty: none.
        lines: Lines that take most of it, longest first.
    """

    kind: str
    place: str
    function: str
    file: str
    line: int
    share: float
    low: float
    high: float
    own_share: float
    seconds_per_step: float | None
    caller: str
    depth: int
    library: str
    lines: list[CodeLine] = field(default_factory=list)


@dataclass(frozen=True)
class UserCode:
    """The program's functions and lines that take time, from sampled stacks.

    Attributes:
        making_samples: Samples in which a batch was made: what shares of making a sample are of.
        step_samples: Samples of the main process, without evaluation: what other shares are of.
        refused: Why processes were not sampled.
        functions: Functions, each followed by those that it calls. What takes less than 1 % is left
            out, as are shares of fewer than 8 samples.
        spread: Times the variance that independent samples have: where threads wait for CPUs, they
            are seen late. Unit: 1.
    """

    making_samples: int
    step_samples: int
    refused: list[str] = field(default_factory=list)
    functions: list[UserFunction] = field(default_factory=list)
    spread: float = 1.0


def user_code(code: SampledCode, mean_s: float, making_s: float | None) -> UserCode:
    """Return what a report tells of sampled code.

    Args:
        mean_s: of the step.
        making_s: that the batches of a step take the processes that make them; None: unknown.
    """
    making, steps, whole = code.making, main_weight(code, EVALUATION), main_weight(code)
    functions: list[UserFunction] = []
    for (kind, place), tree in code.places.items():
        if place == IDLE:
            continue
        maker = (kind, place) in code.maker_places
        basis = making if maker else whole if place == EVALUATION else steps
        if basis.number < _FEWEST:
            continue
        per_step = making_s if maker else None if place == EVALUATION or kind != MAIN else mean_s
        functions += _functions(tree, basis, per_step)
    counts = round(making.number), round(steps.number)
    return UserCode(*counts, list(code.refused), functions, max(making.spread, steps.spread))


def main_weight(code: SampledCode, without: str = "") -> Weight:
    """Return all samples of the main process, but those in one place."""
    whole = Weight()
    for (kind, place), tree in code.places.items():
        if kind == MAIN and place != without:
            whole.join(tree.weight)
    return whole


def _functions(tree: PlaceTree, basis: Weight, per_step: float | None) -> Iterator[UserFunction]:
    def below(node: CodeNode, depth: int, caller: CodeNode | None) -> Iterator[UserFunction]:
        for child in sorted(node.calls.values(), key=lambda other: -other.seconds):
            share, low, high = share_of(child.seconds, basis)
            if share < _TOLD:
                return
            yield UserFunction(
                tree.kind,
                tree.place,
                child.function,
                child.file,
                child.line,
                share,
                low,
                high,
                child.own_s / basis.seconds,
                None if per_step is None else share * per_step,
                _called_from(child, caller),
                depth,
                library_of(child, child.line),
                list(_lines(child, basis)),
            )
            yield from below(child, depth + 1, child)

    return below(tree.root, 0, None)


def _called_from(node: CodeNode, caller: CodeNode | None) -> str:
    if caller is None:
        return ""
    line = max(node.called_at, key=lambda line: node.called_at[line])
    return f"{caller.function} ({caller.file}:{line})"


def _lines(node: CodeNode, basis: Weight) -> Iterator[CodeLine]:
    most = sorted(node.lines, key=lambda line: -node.lines[line])[:_MOST_LINES]
    for line in most:
        share = node.lines[line] / basis.seconds
        if share >= _TOLD:
            yield CodeLine(line, share, library_of(node, line))


def library_of(node: CodeNode, line: int) -> str:
    """Return the library's function that a line mostly calls; empty: none, or one in C."""
    sums: dict[str, float] = {}
    for below, seconds in node.below.get(line, {}).items():
        name = called(below)
        sums[name] = sums.get(name, 0.0) + seconds
    return max(sums, key=lambda name: sums[name], default="")


def loop_code(code: SampledCode, stages: Mapping[str, float]) -> OwnCode | None:
    """Return what the training loop does between models, backward passes and updates.

    Functions that it calls, and lines of its own.

    None: too few samples show it.

    Args:
        stages: of the mean step, seconds.
    """
    trees = [code.places[key] for key in ((MAIN, OTHER), (MAIN, LOGGING)) if key in code.places]
    trained = _training_lines(code)
    whole, parts = Weight(), dict[str, tuple[float, str]]()
    for tree in trees:
        whole.join(tree.weight)
        for name, seconds, mainly in _of_loop(tree.root, code.loop, trained):
            before = parts.get(name, (0.0, ""))
            parts[name] = before[0] + seconds, before[1] or mainly
    of_s = stages.get(OTHER, 0.0)
    if whole.number < _FEWEST or of_s <= 0:
        return None
    functions = []
    for name in sorted(parts, key=lambda name: -parts[name][0])[:_MOST_OWN]:
        share, low, high = share_of(parts[name][0], whole)
        functions.append(OwnFunction(name, share * of_s, low * of_s, high * of_s, parts[name][1]))
    return OwnCode(of_s, round(whole.number), functions)


_LINES = re.compile(r"lines? (?P<first>\d+)(?: to (?P<last>\d+))?\b.*\((?P<file>[^():]+)")
#: Lines between two recorded calls, as they are timed: in one pass, or from one to the next.
_STRETCH = re.compile(
    r"(?:lines (?P<first>\d+) to (?P<last>\d+)(?P<wraps> of the next pass)?|(?:the )?loop around line \d+)"
    r" \((?P<file>[^()]+)\)"
)
_MOST, _MANY = 0.5, 30  # of the loop's own code, and samples: from here on samples are believed


def looked_or_sampled(looked: OwnCode | None, sampled: OwnCode | None) -> OwnCode | None:
    """Return what the loop's own code does: as it was timed, or else as stacks show it.

    A function that calls very many others cannot be timed, and one that runs in few steps is
    rarely; where stacks show one that takes twice as long as any that was timed, they are believed.
    So are they where most of this code lies in a few long steps. Of lines that were timed together,
    stacks name the one that takes most.
    """
    if looked is None or sampled is None or not sampled.functions:
        return looked or sampled
    if looked.few_s >= _MOST * looked.s > 0:
        return sampled
    first = sampled.functions[0]
    timed_s = max((one.s for one in looked.functions), default=0.0)
    surely = sampled.looks >= _MANY and first.s >= _MOST * sampled.s and timed_s < _MOST * first.s
    agrees = any(_same(one, first) and one.high_s >= first.low_s for one in looked.functions)
    return sampled if surely and not agrees else _with_lines(looked, sampled)


def _with_lines(looked: OwnCode, sampled: OwnCode) -> OwnCode:
    """Return it, with lines that were timed together named by the one that takes most of them."""
    lines = [one for one in sampled.functions if one.name.startswith("line ")]
    named = {one.name: one for one in looked.functions}
    for one in sorted(looked.functions, key=_widest_last):
        inside = [line for line in lines if _lies_in(line, one)]
        most = max(inside, key=lambda line: line.s, default=None)
        if most is None or most.s / sampled.s * sampled.looks < _FEWEST:
            continue
        if most.s >= _MOST * one.s and most.low_s <= one.high_s and one.low_s <= most.high_s:
            named[one.name] = replace(one, name=most.name, mainly=most.mainly or one.mainly)
            lines.remove(most)
    return replace(looked, functions=[named[one.name] for one in looked.functions])


def _widest_last(one: OwnFunction) -> int:
    of = _STRETCH.fullmatch(one.name)
    if of is None or of["first"] is None:
        return 2
    return 1 if of["wraps"] else 0


def _lies_in(sampled: OwnFunction, looked: OwnFunction) -> bool:
    """Tell whether a line that stacks show may be one of those that were timed together."""
    line, of = _LINES.match(sampled.name), _STRETCH.fullmatch(looked.name)
    if line is None or of is None or line["file"] != of["file"]:
        return False
    if of["first"] is None:
        return True
    number, first, last = int(line["first"]), int(of["first"]), int(of["last"])
    return number >= first or number <= last if of["wraps"] else first <= number <= last


def _same(looked: OwnFunction, sampled: OwnFunction) -> bool:
    """Tell whether a function or lines that were timed are, or have in them, what stacks show."""
    name = looked.name.partition(" (")[0]
    of = _LINES.match(looked.name)
    if of is None:
        return name.rpartition(".")[2] == sampled.name.partition(" (")[0].rpartition(".")[2]
    line = _LINES.match(sampled.name)
    if line is None:
        return False
    last = int(of["last"] or of["first"])
    return of["file"] == line["file"] and int(of["first"]) <= int(line["first"]) <= last


def _only_called(node: CodeNode) -> CodeNode:
    """Return the innermost function that takes nearly all of the time of those around it."""
    while node.calls:
        child = max(node.calls.values(), key=lambda other: other.seconds)
        if child.seconds < _NEARLY_ALL * node.seconds:
            break
        node = child
    return node


def _training_lines(code: SampledCode) -> frozenset[tuple[str, int]]:
    """Return file and line of the program that call backward passes or updates.

    A line that calls the loop of a library, such as a trainer, calls everything.
    """
    trees = [code.places[MAIN, place] for place in TRAINING if (MAIN, place) in code.places]
    return frozenset(
        (node.file, line)
        for tree in trees
        for node in tree.root.under()
        for line in node.own_lines()
    )


def _of_loop(
    root: CodeNode, loop: tuple[str, str] | None, trained: Collection[tuple[str, int]]
) -> Iterator[tuple[str, float, str]]:
    """(name and place, seconds, what it mostly calls) of what the loop calls, and of its lines.

    Args:
        trained: file and line of those that call everything, and say nothing.
    """
    for node in root.calls.values():
        if node.key != loop:
            inner = _only_called(node)
            at = inner.file if is_line_of_module(inner.key) else inner.place
            if (inner.file, inner.line) not in trained:
                yield f"{inner.function} ({at})", node.seconds, ""
            continue
        for child in node.calls.values():
            yield f"{child.function} ({child.place})", child.seconds, ""
        for line, own_s in node.own_lines().items():
            if (node.file, line) not in trained:
                name = f"line {line} of {node.function} ({node.file}:{line})"
                if is_line_of_module(node.key):
                    name = f"line {line} ({node.file})"
                yield name, own_s, library_of(node, line)


def evaluating_line(
    evaluation: IntArray, code: SampledCode | None, stacks: Sequence[ProcessStacks]
) -> str:
    """Return file and line, as in ``train.py:31``; empty: too few samples show it.

    Args:
        evaluation: int64 [n, 2], ns, disjoint and sorted.
        code: of the same stacks.
    """
    if code is None or code.loop is None or not len(evaluation):
        return ""
    seen = [stack for process in stacks if process.kind == MAIN for stack in process.stacks]
    trains = {one.line for stack in seen for one in _callers(stack, code.loop, TRAINING)[:1]}
    lines: Counter[tuple[str, int]] = Counter()
    for stack in seen:
        moments = np.array(stack.moments, np.int64)
        number = int(holds(evaluation, moments).sum()) if len(moments) else 0
        callers = _callers(stack, code.loop) if number else []
        if callers and callers[0].line in trains:  # a library's loop evaluates below it
            callers = callers[1:]
        lines.update({(one.file, one.line): number for one in callers[:1]})
    (file, line), most = max(lines.items(), key=lambda pair: pair[1], default=(("", 0), 0))
    if most < _FEWEST_EVALUATING or most < _MOST_AT_LINE * lines.total():
        return ""
    return f"{file}:{line}"


def _callers(
    stack: SampledStack, loop: tuple[str, str], places: Collection[str] = ()
) -> list[CodeFrame]:
    """Return the program's frames from the training loop down to the model or loader it called.

    Args:
        places: where the stack must stand; empty: anywhere.
    """
    frames = within_the_program(stack.frames)
    stands = standing(frames)
    if places and stands.place not in places:
        return []
    own = program_frames(frames[: stands.inside])
    at = max((at for at, one in enumerate(own) if in_one_body(one.key, loop)), default=len(own))
    return own[at:]
