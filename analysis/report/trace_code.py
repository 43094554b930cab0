"""Sampled code as a track of a trace: the program's functions, each below its caller.

Stacks are counted per stretch of time, a quarter of a second at first and up to half a minute
later. Within a stretch a function is as wide as its share; where in it that was is not known.
What goes on from one stretch to the next is one slice.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.code_frames import called, program_frames, within_the_program
from feedline.analysis.measure.code_places import IDLE, MAKING, OTHER, standing
from feedline.analysis.measure.roles import inside_process
from feedline.analysis.traces.perfetto import PerfettoRank, span_line
from feedline.profiler.store.sampled_stacks import StackFrame
from feedline.profiler.store.stacks_reader import Stretch

#: From a rank's CLOCK_MONOTONIC, ns, to the times that are written, ns.
Clock = Callable[[IntArray], IntArray]

_Key = tuple[str, str]  # file and function; of a place or a library's function, the file is empty


@dataclass
class _Slice:
    """A function that was seen without a break.

    Attributes:
        lines: line -> samples.
    """

    key: _Key
    depth: int
    begin: int
    end: int
    lines: dict[int, int] = field(default_factory=dict)


def code_lines(
    stretches: Sequence[Stretch], process: str, made: PerfettoRank, clock: Clock
) -> Iterator[str]:
    """Return the lines of a process's track; none if nothing of its program was seen."""
    slices = sorted(_slices(stretches), key=lambda one: (one.begin, one.depth))
    if not slices:
        return
    (tid,), named = made.tracks(f"{process}, sampled code")
    yield from named
    begin = clock(np.array([one.begin for one in slices]))
    end = clock(np.array([one.end for one in slices]))
    for one, start, until in zip(slices, begin.tolist(), end.tolist()):
        yield span_line(
            f'"name": {json.dumps(one.key[1])}, "cat": "sampled"',
            made.pid,
            tid,
            start,
            until - start,
            _says(one),
        )


def _says(one: _Slice) -> str:
    samples = f'"samples": {sum(one.lines.values())}'
    if not one.key[0]:
        return samples
    line = max(one.lines, key=lambda at: one.lines[at])
    return f'"line": {json.dumps(f"{one.key[0]}:{line}")}, {samples}'


def _slices(stretches: Sequence[Stretch]) -> Iterator[_Slice]:
    order: dict[tuple[_Key, ...], int] = {}
    going: list[_Slice] = []
    for stretch in stretches:
        if going and going[0].end != stretch.begin:
            yield from going
            going = []
        at, whole = float(stretch.begin), sum(ns for _, _, ns in stretch.stacks)
        for chain, samples, ns in _in_order(stretch, order):
            begin = round(at)
            at += ns / max(whole, 1) * (stretch.end - stretch.begin)
            kept = 0
            while kept < min(len(chain), len(going)) and going[kept].key == chain[kept][0]:
                kept += 1
            yield from going[kept:]
            del going[kept:]
            for depth, (key, _) in enumerate(chain[kept:], kept):
                going.append(_Slice(key, depth, begin, begin))
            for slice_, (_, line) in zip(going, chain):
                slice_.end = round(at)
                slice_.lines[line] = slice_.lines.get(line, 0) + samples
    yield from going


_Chain = tuple[tuple[_Key, int], ...]  # functions, outermost first, and the line of each


def _in_order(
    stretch: Stretch, order: dict[tuple[_Key, ...], int]
) -> Iterator[tuple[_Chain, int, int]]:
    """Return functions, samples and ns, those beside each other that share callers.

    Args:
        order: chains of functions in the order in which they were first seen; is added to.
    """
    seen = [(_chain(frames), samples, ns) for frames, samples, ns in stretch.stacks]

    def place(chain: _Chain) -> list[int]:
        keys = tuple(key for key, _ in chain)
        return [order.setdefault(keys[: at + 1], len(order)) for at in range(len(keys))]

    places = [place(chain) for chain, _, _ in seen]
    for at in sorted(range(len(seen)), key=lambda at: places[at]):
        yield seen[at]


def _chain(frames: Sequence[StackFrame]) -> _Chain:
    """Return the program's functions of a stack, and below them what the last of them is in.

    That is a place of the pipeline, such as wait or backward, or else a library's function. Of a
    worker, which is a fork of the main process, it is what is inside of the making of a batch.
    """
    frames = inside_process(within_the_program(frames))
    stood = standing(frames)
    inside = stood.place in (*MAKING, IDLE)
    own = program_frames(frames[stood.inside :] if inside else frames)
    is_last = not program_frames(frames[stood.inside :])
    library = called(own[-1].below) if own else ""
    last = stood.place if stood.place != OTHER and is_last else library
    chain = [(frame.key, frame.line) for frame in own]
    return (*chain, *([(("", last), 0)] if last else []))
