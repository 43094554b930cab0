"""A block of text as events and their times: what is decoded of an event, and exact nanoseconds."""

import functools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

NONE: Final = msgspec.Raw()  # a value that is not there
_Scalar = int | float | str | None
#: Phases of the Trace Event Format that are of no use here: flows, instants, counters, objects,
#: clocks. Half of a file is flows.
IGNORED = [
    msgspec.defstruct(f"Ignored{n}", [], gc=False, tag_field="ph", tag=phase)
    for n, phase in enumerate("iICbnesSfTtpFNODPRcVv(),")
]
# microseconds: the doubles beyond lie more than 1 ns apart (2**43 * 2**-52 us = 0.00195 us)
_EXACT_BELOW = 2.0**43
_INTEGERS_BELOW = 2.0**51  # microseconds: within _MAX_TIME_NS
_MAX_TIME_NS = 1 << 61  # nanoseconds, 73 years; three such times can be added
UNREADABLE = np.iinfo(np.int64).min
_Times = npt.NDArray[np.int64]
_OLD_DIMS = re.compile(rb'"Input dims"(?=\s*:)')
_ts, _dur = attrgetter("ts"), attrgetter("dur")


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that become columns.

    A file in which one of them has another type is read the slow way.
    """

    device: _Scalar = None
    stream: _Scalar = None
    correlation: int = -1
    bytes: int = -1
    dims: msgspec.Raw = msgspec.field(default=NONE, name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=NONE, name="Input type")
    name: str | None = None  # of a process or thread
    operation: _Scalar = msgspec.field(default=None, name="Collective name")
    group: _Scalar = msgspec.field(default=None, name="Process Group Name")
    ranks: msgspec.Raw = msgspec.field(default=NONE, name="Process Group Ranks")
    size: _Scalar = msgspec.field(default=None, name="Group size")
    sequence: _Scalar = msgspec.field(default=None, name="Seq")
    elements_in: _Scalar = msgspec.field(default=None, name="In msg nelems")
    elements_out: _Scalar = msgspec.field(default=None, name="Out msg nelems")
    dtype: _Scalar = None
    first: _Scalar = msgspec.field(default=None, name="Global rank start")
    stride: _Scalar = msgspec.field(default=None, name="Global rank stride")


NO_ARGS: Final = Args()


class _Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event whose times a float can hold to the nanosecond.

    Fields stand in the order of files, in which they are found fastest.
    """

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: int | float = float("nan")
    dur: int | float = 0
    args: Args = NO_ARGS


class ExactSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event whose times are kept as they are written."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: Args = NO_ARGS


class Begin(msgspec.Struct, gc=False, tag_field="ph", tag="B"):
    """One side of an event whose other side is an End."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE
    args: Args = NO_ARGS


class End(msgspec.Struct, gc=False, tag_field="ph", tag="E"):
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE


class Label(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: Args = NO_ARGS


AnySpan = _Span | ExactSpan | Begin

_others: Any = functools.reduce(operator.or_, IGNORED, Begin | End | Label)
_FLOAT_DECODER = msgspec.json.Decoder(list[_Span | _others])
_EXACT = msgspec.json.Decoder(list[ExactSpan | _others])
ONE = msgspec.json.Decoder(ExactSpan | _others)


def _from_numbers(values: Sequence[int | float]) -> npt.NDArray[np.int64] | None:
    """Return nanoseconds [n] of microseconds with up to three decimals.

    None: a float has lost some of them, and the text is needed.
    """
    try:
        micros = np.fromiter(values, "f8", len(values))
    except OverflowError:
        return None
    largest = np.abs(micros).max(initial=0.0)
    if not largest < _EXACT_BELOW and (
        not largest < _INTEGERS_BELOW or float in set(map(type, values))
    ):
        return None
    whole = np.floor(micros)
    return whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64)


def _from_texts(texts: Sequence[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """Return nanoseconds [n] of microseconds as written.

    UNREADABLE where that is not a number, or not one that a clock shows.
    """
    joined = b",".join(texts)
    if not texts or joined.translate(None, b"0123456789.,-"):
        return _one_by_one(texts)
    letters = np.frombuffer(joined, "u1")
    ends = np.append(np.flatnonzero(letters == ord(",")), len(letters))
    dots = np.flatnonzero(letters == ord("."))
    begins = np.append(0, ends[:-1] + 1)
    owners = np.searchsorted(ends, dots)
    whole_ends = ends.copy()
    whole_ends[owners] = dots
    decimals = np.where(whole_ends < ends, ends - whole_ends - 1, 0)
    wholes = whole_ends - begins
    if len(ends) != len(texts) or wholes.min() == 0 or decimals.max() > 3:
        return _one_by_one(texts)
    # too large for 64 bits, or not a time
    if wholes.max() > 16 or (letters[begins[wholes == 16]] > ord("2")).any():
        return _one_by_one(texts)
    digits = np.fromstring(joined.translate(None, b".").decode(), "i8", sep=",")
    return np.asarray(digits * 10 ** (3 - decimals), np.int64)


def _one_by_one(texts: Sequence[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """Convert texts as ``_from_texts`` does, for numbers of any form."""
    return np.array([_nanoseconds(bytes(text)) for text in texts], np.int64)


def _nanoseconds(text: bytes) -> int:
    try:
        nanoseconds = Decimal(text.decode("ascii").strip('"')) * 1000
        return (
            int(nanoseconds.to_integral_value()) if abs(nanoseconds) < _MAX_TIME_NS else UNREADABLE
        )
    except (ArithmeticError, ValueError):
        return UNREADABLE


@dataclass(frozen=True)
class Block:
    """Events of one block that are of use; the others (flows, counters, instants) are gone.

    Attributes:
        spans: whole events. start, wall: of each, ns; UNREADABLE where the file has no number.
        marks: begins and ends of events whose two sides are apart. at: of each, ns.
        labels: names of processes and threads.
    """

    spans: Sequence[AnySpan]
    start: _Times
    wall: _Times
    marks: Sequence[Begin | End]
    at: _Times
    labels: Sequence[Label]


class BlockDecoder:
    """Decode blocks; from the first one on whose times floats would round, by their texts."""

    def __init__(self) -> None:
        self._exact = False

    def __call__(self, text: bytes) -> Block | None:
        """Return events of a list without its brackets; None: it is not such a list."""
        text = b"".join((b"[", text, b"]"))
        if b'"Input dims"' in text:  # as it was called in 2021
            text = _OLD_DIMS.sub(b'"Input Dims"', text)
        try:
            if not self._exact:
                events = _FLOAT_DECODER.decode(text)
                spans = [event for event in events if type(event) is _Span]
                start = _from_numbers(list(map(_ts, spans)))
                wall = _from_numbers(list(map(_dur, spans)))
                if start is not None and wall is not None:
                    return _block(events, spans, start, wall)
            self._exact = True
            return by_texts(_EXACT.decode(text))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None


def by_texts(events: Sequence[Any]) -> Block:
    """Make a block of events whose times are texts."""
    spans = [event for event in events if type(event) is ExactSpan]
    return _block(
        events, spans, _from_texts(list(map(_ts, spans))), _from_texts(list(map(_dur, spans)))
    )


def _block(events: Sequence[Any], spans: Sequence[AnySpan], start: _Times, wall: _Times) -> Block:
    rest = (
        [event for event in events if type(event) in (Label, Begin, End)]
        if len(spans) < len(events)
        else []
    )
    marks = [event for event in rest if type(event) is not Label]
    return Block(
        spans,
        start,
        wall,
        marks,
        _from_texts(list(map(_ts, marks))),
        [event for event in rest if type(event) is Label],
    )
