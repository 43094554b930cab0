"""Functions of the program's own code, in words."""

from collections.abc import Sequence

from feedline.analysis.formatting import seconds
from feedline.analysis.measure.model import OwnFunction

#: Functions and lines below this share of the step are not named.
NAMED_SHARE = 0.03


NAMED = 3


def parts(named: Sequence[OwnFunction]) -> str:
    """``1.3 ms in project (train.py:20), mostly in cat (train.py:8); 0.2 ms in lines 30 to 41 (train.py)``."""
    return "; ".join(f"{seconds(one.s)} in {one.name}{f', mostly in {one.mainly}' if one.mainly else ''}" for one in named)
