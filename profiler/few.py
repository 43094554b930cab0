"""Names the first few of many."""

from collections.abc import Sequence


def few(things: Sequence[object], most: int) -> str:
    """``a, b, c and 4 more``."""
    more = f" and {len(things) - most:,} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more
