"""Types of arguments: which values a command accepts, and what it says about others."""

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from feedline.profiler.errors import ScriptError
from feedline.profiler.ranks import MOST_RANKS

MOST = 10**9  # of anything that is counted: what is larger was not meant
PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
PER_BYTE = {"B": 1, "bit": 8, "b": 8}


def at_least(least: int, most: int = MOST) -> Callable[[str], int]:
    """Whole numbers."""

    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most:,}, got {text[:40]!r}")
        return int(text)

    return number


def rank_counts(text: str) -> list[int]:
    """``1,2,4``: numbers of ranks, ascending and each once."""
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MOST_RANKS:
        raise argparse.ArgumentTypeError(
            f"expected numbers of ranks from 1 to {MOST_RANKS:,}, separated by commas, such as 1,2,4, got {text[:40]!r}"
        )
    return found


def listed(text: str) -> list[str]:
    """Names with commas between them."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, got {text[:40]!r}")
    return found


def positive(text: str) -> float:
    """Numbers above zero."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text[:40]!r}")
    return value


def finite(text: str) -> float:
    """Numbers that can be calculated with."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text[:40]!r}")
    return value


def bandwidth(text: str) -> float:
    """``25GB/s`` or ``200Gbit/s``, in bytes/s. The unit is required: readers of data sheets mean bits, readers of reports bytes."""
    parts = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kKMGT]?)(B|bit|b)(?:/s|ps)", text.strip())
    if parts is None:
        raise argparse.ArgumentTypeError(f"expected a bandwidth with its unit, such as 25GB/s or 200Gbit/s, got {text[:40]!r}")
    return positive(parts[1]) * PREFIXES[parts[2]] / PER_BYTE[parts[3]]


def gigabytes_per_s(text: str) -> float:
    """A number of GB/s, in bytes/s."""
    return positive(text) * 1e9


def refuse_twice(paths: Sequence[str | Path], what: str) -> None:
    """See that no file or folder is there twice, under whatever name. Raises ScriptError: one is.

    Args:
        what: they are, for the error.
    """
    first: dict[str, str] = {}
    for path in map(str, paths):
        place = path if "://" in path else os.path.realpath(path)
        if place in first:
            also = f" (also as {first[place]})" if first[place] != path else ""
            raise ScriptError(f"{path} is given twice{also}: name each {what} once")
        first[place] = path
