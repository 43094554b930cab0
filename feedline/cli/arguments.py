"""Types of command-line arguments: accepted values, and the errors for others."""

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from feedline.profiler.errors import ScriptError
from feedline.profiler.ranks import MOST_RANKS

_MOST = 10**9  # of anything that is counted: what is larger was not meant
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PER_BYTE = {"B": 1, "bit": 8, "b": 8}


def at_least(least: int, most: int = _MOST) -> Callable[[str], int]:
    """A type for whole numbers in a range."""

    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most:,}, got {text[:40]!r}")
        return int(text)

    return number


def rank_counts(text: str) -> list[int]:
    """``1,2,4``: numbers of ranks, ascending and without duplicates."""
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
    """Names separated by commas."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, got {text[:40]!r}")
    return found


def positive(text: str) -> float:
    """A number above zero."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text[:40]!r}")
    return value


def finite(text: str) -> float:
    """A number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text[:40]!r}")
    return value


def bandwidth(text: str) -> float:
    """``25GB/s`` or ``200Gbit/s``, in bytes/s. The unit is required: data sheets use bits, reports bytes."""
    parts = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kKMGT]?)(B|bit|b)(?:/s|ps)", text.strip())
    if parts is None:
        raise argparse.ArgumentTypeError(f"expected a bandwidth with its unit, such as 25GB/s or 200Gbit/s, got {text[:40]!r}")
    return positive(parts[1]) * _PREFIXES[parts[2]] / _PER_BYTE[parts[3]]


def byte_count(text: str) -> float:
    """``8GB`` or ``512MB``, in powers of 1000, or ``8GiB``, in powers of 1024: bytes. The unit is required."""
    parts = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kKMGT]?)(i?)B", text.strip())
    if parts is None or (parts[3] and not parts[2]):
        raise argparse.ArgumentTypeError(f"expected a size with its unit, such as 8GB or 512MB, got {text[:40]!r}")
    power = "kMGT".index(parts[2].replace("K", "k")) + 1 if parts[2] else 0
    return positive(parts[1]) * float(1024 if parts[3] else 1000) ** power


def file_name(text: str) -> Path:
    """The path of a result that is only written to files: ``-`` would be a file of that name."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' (standard output) is not supported here: name a file")
    return Path(text)


def refuse_twice(paths: Sequence[str | Path], what: str) -> None:
    """Check that no file or folder is given twice, under any name.

    Args:
        what: they are, for the error.

    Raises:
        ScriptError: one is.
    """
    first: dict[str, str] = {}
    for path in map(str, paths):
        place = path if "://" in path else os.path.realpath(path)
        if place in first:
            also = f" (also as {first[place]})" if first[place] != path else ""
            raise ScriptError(f"{path} is given twice{also}: name each {what} once")
        first[place] = path


def share(text: str) -> float:
    """``0.05`` or ``5%``: a share above 0 and below 1."""
    value = finite(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a share above 0 and below 1, such as 0.05 or 5%, got {text[:40]!r}")
    return value
