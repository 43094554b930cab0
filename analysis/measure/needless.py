"""Needless work, from a few looks at graphs and values.

Unused forwards and gradients, padding, denormal numbers.
"""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.clues import (
    Denormal,
    DroppedForwards,
    OneByOne,
    Padding,
    Skipped,
    UnusedGradients,
)
from feedline.analysis.measure.code_places import program_frames, within_the_program
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.growing_lines import around, in_order, line_of_skip
from feedline.analysis.measure.memory import model_called_at
from feedline.analysis.measure.source_lines import SourceLines, parsed
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import DENORMAL, PADDING, Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.sampled_stacks import ProcessStacks
from feedline.profiler.store.segment_reader import Process

_FEWEST = 5  # looks that say something of a run
_IN_EACH = 0.8  # of the looks: what is seen in as many happens in each step
_DENORMAL = 0.01  # of the values of a look, from which on its step computes with them
#: Times a step before there were denormal numbers: a smaller difference may be noise.
_BEFORE = 1.2
_FEWEST_STEPS = 10  # before and after
_FEWEST_UPDATES = 8  # of an optimizer: a first one may be of another kind
_IN_MOST = 0.5  # of the updates of an optimizer, and of the samples at one line
_FEWEST_SAMPLES = 5
_MANY = 8  # calls of a model in a step: a GAN or a contrastive loss has fewer


def skipping(main: Process, steps: Steps, source: SourceLines) -> Skipped | None:
    """Return the batches that are skipped in each pass, and the line that does so."""
    found = steps.skipped
    return found and replace(found, place=line_of_skip(model_called_at(main), source))


def one_by_one(main: Process, steps: Steps) -> OneByOne | None:
    """Return the model that is called as often in a step as its batch has samples.

    None: there is none. Steps of several batches, as where gradients are accumulated, do not count.
    """
    if not len(steps.start) or np.median(steps.batches) != 1:
        return None
    wanted = Flag.TRAINING | Flag.GRAD
    spans = main.records[
        (main.records["stage"] == Stage.FORWARD) & (main.records["flags"] & wanted == wanted)
    ]
    at = steps.boundaries.step_of(spans["start"])
    spans, at = spans[at >= 0], at[at >= 0]
    if not len(spans):
        return None
    ((model, _),) = Counter(spans["source"].tolist()).most_common(1)
    called = spans["source"] == model
    counts = np.bincount(at[called], minlength=len(steps.start))
    calls, samples = int(np.median(counts)), int(np.median(steps.samples))
    as_many, others = counts == steps.samples, steps.samples != samples
    if calls < _MANY or np.mean(as_many) < _IN_EACH:
        return None
    if others.any() and np.mean(as_many[others]) < _IN_EACH:
        return None  # such as time steps: a smaller batch has as many
    seconds = float(spans["wall"][called].sum()) / 1e9 / len(steps.start)
    return OneByOne(calls, samples, seconds, model_called_at(main))


def dropped_forwards(main: Process, source: SourceLines) -> DroppedForwards | None:
    """Return the forwards whose graph is never used; None: most steps have none."""
    looks = main.view(Stage.DROPPED)
    some = looks[looks["dropped"] > 0]
    if len(looks) < _FEWEST or len(some) < _IN_EACH * len(looks):
        return None
    ((name, _),) = Counter(some["source"].tolist()).most_common(1)
    place = main.names.get(int(name), "")
    seconds = float(np.median(some["wall"])) / 1e9
    return DroppedForwards(seconds, len(looks), place, _is_overwritten(place, source))


def _is_overwritten(called_at: str, source: SourceLines) -> bool:
    """Tell whether a call's result is overwritten before it is read.

    Args:
        called_at: file and line of the call, ``train.py:20``.
    """
    file, _, line = called_at.rpartition(":")
    tree = parsed(source.text(file)) if line.isdecimal() else None
    if tree is None:
        return False
    name = ""
    for statement in around(tree, int(line)):
        if not name and statement.lineno <= int(line) <= (statement.end_lineno or 0):
            inner = list(in_order([statement]))
            calls = [part for part in inner if part.lineno <= int(line) <= (part.end_lineno or 0)]
            name = _assigned(calls[0]) if calls else ""
            rest = inner[inner.index(calls[0]) + 1 :] if calls else []
            if not name or any(_names(part, name) for part in rest):
                return False
        elif name and (named := _names(statement, name)):
            return isinstance(statement, ast.Assign) and all(
                isinstance(part.ctx, ast.Store) for part in named
            )
    return False


def _names(part: ast.AST, name: str) -> list[ast.Name]:
    return [one for one in ast.walk(part) if isinstance(one, ast.Name) and one.id == name]


def _assigned(statement: ast.stmt) -> str:
    """Return the one name that a statement assigns; empty: none, or more than that."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _of_kind(main: Process, kind: str) -> Records:
    looks = main.view(Stage.CONTENTS)
    numbers = [number for number, name in main.names.items() if name == kind]
    return looks[np.isin(looks["source"], numbers)]


def padding(main: Process) -> Padding | None:
    """Return how much of the batches is padding that no row needs; None: too few were looked at."""
    looks = _of_kind(main, PADDING)
    values = int(looks["values"].sum())
    if len(looks) < _FEWEST or not values:
        return None
    needless, padded = (float(looks[name].sum()) / values for name in ("needless", "padded"))
    return Padding(needless, padded, len(looks))


def denormal(main: Process, start: IntArray, wall: IntArray, total: int) -> Denormal | None:
    """Return how much of parameters and gradients is denormal; None: nothing is.

    Args:
        start, wall: int64 [n], ns, of the recorded steps.
        total: steps of the run, also those that were only counted.
    """
    looks = _of_kind(main, DENORMAL)
    looks = looks[np.argsort(looks["start"])]
    shares = looks["needless"] / np.maximum(looks["values"], 1)
    has = shares >= _DENORMAL
    if not has.any():
        return None
    first = int(np.argmax(has))
    longer = None if first < _FEWEST else _longer(looks[first - 1 : first + 1], start, wall, total)
    return Denormal(float(shares.max()), len(looks), int(has.sum()), longer)


def _longer(between: Records, start: IntArray, wall: IntArray, total: int) -> float | None:
    """Return the share of the mean step by which it is longer than one before two looks."""
    after = start >= int(between["start"].mean())
    if min(int(after.sum()), int((~after).sum())) < _FEWEST_STEPS:
        return None
    slow, usual = float(wall[after].mean()), float(wall[~after].mean())
    if slow < _BEFORE * usual:
        return None
    part = max(0.0, 1 - float(between["updates"].mean()) / max(total, 1))
    added = part * (slow - usual)
    return added / (usual + added)


def unused_gradients(
    main: Process, training: Mapping[str, Any], stacks: Sequence[ProcessStacks]
) -> UnusedGradients | None:
    """Return the gradients of most parameters that are dropped with most updates; None: none are.

    Args:
        training: what the manifest tells of it.
    """
    cleared, updates = main.view(Stage.GRADIENTS), main.of(Stage.OPTIMIZER)
    cleared = cleared[
        (cleared["unused_elements"] > 0) & (cleared["number"] >= 0) & (cleared["thread"] == 0)
    ]
    found = []
    for number in np.unique(cleared["number"]).tolist():
        of, made = (records[records["number"] == number] for records in (cleared, updates))
        if len(made) >= _FEWEST_UPDATES and len(of) > _IN_MOST * len(made):
            found.append((int(np.median(of["unused_elements"])), of, made))
    if not found:
        return None
    elements, of, made = max(found, key=lambda one: one[0])
    passes = _passes_between(main, made, of["start"])
    if not len(passes):
        return None
    backward_s = float((passes[:, 1] - passes[:, 0]).sum()) / len(of) / 1e9
    return UnusedGradients(
        elements,
        _share_of_parameters(elements, training),
        backward_s,
        _line_of_passes(passes, stacks),
    )


def _passes_between(main: Process, updates: Any, cleared: IntArray) -> IntArray:
    """Return the backward passes between an update and the clearing after it, int64 [n, 2], ns."""
    ends = np.sort(updates["start"] + updates["wall"])
    last = np.searchsorted(ends, cleared, "right") - 1
    gaps = np.stack([ends[np.maximum(last, 0)], cleared], 1)[last >= 0]
    backward = main.of(Stage.BACKWARD)
    backward = backward[backward["thread"] == 0]
    inside = holds(gaps[np.argsort(gaps[:, 0])], backward["start"])
    begun = backward["start"][inside]
    return np.stack([begun, begun + backward["wall"][inside]], 1)


def _share_of_parameters(elements: int, training: Mapping[str, Any]) -> float:
    listed = training.get("optimizers")
    groups = [
        group
        for one in (listed if isinstance(listed, list) else [])
        for group in one.get("groups") or []
    ]
    whole = sum(int(group.get("elements", 0)) for group in groups)
    return min(1.0, elements / whole) if whole else 0.0


def _line_of_passes(passes: IntArray, stacks: Sequence[ProcessStacks]) -> str:
    """Return file and line of the program at which most samples in these passes are."""
    lines: Counter[tuple[str, int]] = Counter()
    for process in stacks:
        for stack in process.stacks if process.kind == MAIN else ():
            moments = np.array(stack.moments, np.int64)
            number = int(holds(passes, moments).sum()) if len(moments) else 0
            frames = program_frames(within_the_program(stack.frames)) if number else ()
            if frames:
                lines[frames[-1].key[0], frames[-1].line] += number
    place, most = max(lines.items(), key=lambda pair: pair[1], default=(("", 0), 0))
    if most < _FEWEST_SAMPLES or most < _IN_MOST * lines.total():
        return ""
    return f"{place[0]}:{place[1]}"


def saved_bytes(main: Process) -> float | None:
    """Return the median size of what ``torch.save`` wrote; None: it is not known."""
    sizes = main.view(Stage.CHECKPOINT)["nbytes"]
    sizes = sizes[sizes > 0]
    return float(np.median(sizes)) if len(sizes) else None
