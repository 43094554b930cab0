"""What functions took in a stretch of the program's own code.

They are told apart by the ``id`` of their code: a code object's own hash goes through all of its instructions.
"""

import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import NamedTuple

Times = dict[int, int]  # id of a code -> ns


class Called(NamedTuple):
    """What was called in a stretch.

    Attributes:
        direct: without calls by other functions that were called in the stretch. These add up to at most the stretch.
        whole: however deep it was called.
        inner: id of a code -> what it called.
        codes: by their ids.
        events: calls and returns that were seen.
    """

    direct: Times
    whole: Times
    inner: dict[int, Times]
    codes: dict[int, CodeType]
    events: int


class Frame(NamedTuple):
    """A function that runs. The frame itself is not held, so nothing in it lives longer.

    Attributes:
        number: of the frame.
        at: index of the instruction in its code.
    """

    number: int
    code: CodeType
    at: int


def line_of(code: CodeType, at: int) -> int:
    """Of an instruction; 0 if unknown."""
    return next((line for begin, end, line in code.co_lines() if begin <= at < end and line), 0)


def running() -> list[Frame]:
    """What runs in this thread, the outermost first."""
    found: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append(Frame(id(frame), frame.f_code, frame.f_lasti))
        frame = frame.f_back
    found.reverse()
    return found


def all_the_while(before: Iterable[Frame], after: Iterable[Frame], called: Called) -> list[tuple[Frame, Frame]]:
    """What ran in all of a stretch, the outermost first: as it was at both ends.

    Args:
        before, after: what ran at its ends.
        called: in it. A function that was called in it may have taken the place of an earlier call.
    """
    found = []
    for one, other in zip(before, after):
        if one.number != other.number or one.code is not other.code or id(one.code) in called.whole:
            break
        found.append((one, other))
    return found
