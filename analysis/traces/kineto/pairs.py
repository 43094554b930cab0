"""Events whose begin and end stand apart in the file."""

from collections.abc import Sequence

import numpy as np

from feedline.analysis.traces.kineto.decode import Block
from feedline.analysis.traces.kineto.schema import AnySpan, Begin, End
from feedline.analysis.traces.kineto.times import UNREADABLE

Mark = tuple[int, Begin | End]


def paired(marks: Sequence[Mark]) -> tuple[Block, int]:
    """Join each end with the last begin of its thread that is open; and how many have no partner.

    Args:
        marks: (ns, event) in the order of the file, which decides between marks of one moment.
    """
    open_: dict[tuple[str, str], list[tuple[int, Begin]]] = {}
    spans: list[tuple[AnySpan, int, int]] = []
    alone = 0
    for at, mark in sorted(marks, key=lambda mark: mark[0]):
        stack = open_.setdefault((str(mark.pid), str(mark.tid)), [])
        if at == UNREADABLE:
            alone += 1
        elif isinstance(mark, Begin):
            stack.append((at, mark))
        elif stack:
            begin, event = stack.pop()
            spans.append((event, begin, at - begin))
        else:
            alone += 1
    alone += sum(map(len, open_.values()))
    start, wall = (np.array([span[field] for span in spans], np.int64) for field in (1, 2))
    return Block([span[0] for span in spans], start, wall, [], np.empty(0, np.int64), []), alone
