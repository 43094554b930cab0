"""A block of text as events and their times."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.kineto.schema import EXACT, FAST, AnySpan, Begin, End, ExactSpan, Label, Span
from feedline.analysis.traces.kineto.times import from_numbers, from_texts

Times = npt.NDArray[np.int64]
_OLD_DIMS = re.compile(rb'"Input dims"(?=\s*:)')
_ts, _dur = attrgetter("ts"), attrgetter("dur")


@dataclass(frozen=True)
class Block:
    """Events of one block that are of use; the others (flows, counters, instants) are gone.

    Attributes:
        spans: whole events. start, wall: of each, ns; UNREADABLE where the file has no number.
        marks: begins and ends of events whose two sides are apart. at: of each, ns.
        labels: names of processes and threads.
    """

    spans: Sequence[AnySpan]
    start: Times
    wall: Times
    marks: Sequence[Begin | End]
    at: Times
    labels: Sequence[Label]


class Decoder:
    """Decode blocks; from the first one on whose times floats would round, by their texts."""

    def __init__(self) -> None:
        self._exact = False

    def __call__(self, text: bytes) -> Block | None:
        """Events of a list without its brackets; None: it is not such a list."""
        text = b"".join((b"[", text, b"]"))
        if b'"Input dims"' in text:  # as it was called in 2021
            text = _OLD_DIMS.sub(b'"Input Dims"', text)
        try:
            if not self._exact:
                events = FAST.decode(text)
                spans = [event for event in events if type(event) is Span]
                start, wall = from_numbers(list(map(_ts, spans))), from_numbers(list(map(_dur, spans)))
                if start is not None and wall is not None:
                    return _block(events, spans, start, wall)
            self._exact = True
            return by_texts(EXACT.decode(text))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None


def by_texts(events: Sequence[Any]) -> Block:
    """Of events whose times are texts."""
    spans = [event for event in events if type(event) is ExactSpan]
    return _block(events, spans, from_texts(list(map(_ts, spans))), from_texts(list(map(_dur, spans))))


def _block(events: Sequence[Any], spans: Sequence[AnySpan], start: Times, wall: Times) -> Block:
    rest = [event for event in events if type(event) in (Label, Begin, End)] if len(spans) < len(events) else []
    marks = [event for event in rest if type(event) is not Label]
    return Block(spans, start, wall, marks, from_texts(list(map(_ts, marks))), [event for event in rest if type(event) is Label])
