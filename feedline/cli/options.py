"""Options shared by several commands, and the types of arguments.

They are defined once, so that their names and help agree.
"""

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.profiler.errors import ScriptError

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import RankPool

_Group = argparse._ActionsContainer  # a parser, or one of its groups
_OVERWRITE = "overwrite existing files"
_SILENT = "print only errors"
STDOUT = Path("-")
_MAX_COUNT = 10**9  # of anything that is counted: what is larger was not meant
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PER_BYTE = {"B": 1, "bit": 8, "b": 8}


def add_output(
    parser: argparse.ArgumentParser,
    output: str = "",
    metavar: str = "FILE",
    json: str = "",
    force: str = _OVERWRITE,
    quiet: str = _SILENT,
    prints: bool = True,
    **of_output: Any,
) -> None:
    """Add ``-o``, ``--json``, ``-f`` and ``-q``, as a group of the help.

    Args:
        parser: of the command.
        output: what ``-o`` writes; "": there is no such option.
        metavar: what ``-o`` takes.
        json: what ``--json FILE`` writes; "": there is no such option.
        force: the help of ``-f``.
        quiet: the help of ``-q``.
        prints: whether FILE may be "-", which is STDOUT.
        **of_output: more of ``-o``, such as ``required``.
    """
    group = parser.add_argument_group("output")
    if output:
        group.add_argument(
            "-o", "--output", type=_file_name, metavar=metavar, help=output, **of_output
        )
    if json:
        group.add_argument(
            "--json",
            type=Path if prints else _file_name,
            metavar="FILE",
            help=f"also write {json} to FILE as JSON{' (use - to print only the JSON)' * prints}",
        )
    group.add_argument("-f", "--force", action="store_true", help=force)
    group.add_argument("-q", "--quiet", action="store_true", help=quiet)


def add_rank_pool(group: _Group) -> None:
    """Add the options for where ranks are read: on this machine, or on a Dask cluster."""
    group.add_argument(
        "--processes",
        type=at_least(1),
        metavar="N",
        help="local processes that read the files of ranks (default: one per CPU)",
    )
    group.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read them on the Dask cluster of this scheduler, whose workers must see the same files",
    )


def rank_pool(
    args: argparse.Namespace, parts: int | None = None
) -> "AbstractContextManager[RankPool]":
    """Return the workers that read ranks: this process, others here, or a Dask cluster.

    Args:
        args: with the options of ``add_rank_pool``.
        parts: number of parts of the work; None: not known yet.
    """
    from feedline.analysis.ranks.many.rank_pool import dask, here, local

    if args.dask:
        return dask(args.dask)
    return (
        here()
        if parts == 1 or (parts is not None and args.processes == 1)
        else local(args.processes)
    )


def add_training(group: _Group, data_required: bool = False) -> None:
    """Add the options that describe a training: data, transforms, model, batch size."""
    group.add_argument(
        "--data",
        type=Path,
        required=data_required,
        metavar="DIR",
        help="image folder with one subfolder per class",
    )
    group.add_argument(
        "--transforms",
        metavar="MODULE:NAME",
        help="torchvision transform, or a function that returns one",
    )
    group.add_argument(
        "--model",
        metavar="MODULE:NAME",
        help="nn.Module, its class, or a function that returns one",
    )
    group.add_argument(
        "--batch-size",
        type=at_least(1),
        default=32,
        metavar="IMAGES",
        help="images per batch (default: 32)",
    )


def at_least(minimum: int, maximum: int = _MAX_COUNT) -> Callable[[str], int]:
    """Return a type for whole numbers in a range."""

    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 20 and minimum <= int(text) <= maximum):
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {minimum} to {maximum:,}, got {text[:40]!r}"
            )
        return int(text)

    return number


def rank_counts(text: str) -> list[int]:
    """Parse ``1,2,4``: numbers of ranks, ascending and without duplicates."""
    from feedline.profiler.files.checking import MOST_RANKS

    try:
        counts = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1 or counts[-1] > MOST_RANKS:
        raise argparse.ArgumentTypeError(
            f"expected numbers of ranks from 1 to {MOST_RANKS:,}, separated by commas, such as "
            f"1,2,4, got {text[:40]!r}"
        )
    return counts


def name_list(text: str) -> list[str]:
    """Parse names separated by commas."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, got {text[:40]!r}")
    return names


def positive(text: str) -> float:
    """Parse a number above zero."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text[:40]!r}")
    return value


def finite(text: str) -> float:
    """Parse a number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text[:40]!r}")
    return value


def bandwidth(text: str) -> float:
    """Parse ``25GB/s`` or ``200Gbit/s`` into bytes/s.

    The unit is required: data sheets use bits, reports bytes.
    """
    parts = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kKMGT]?)(B|bit|b)(?:/s|ps)", text.strip())
    if parts is None:
        raise argparse.ArgumentTypeError(
            f"expected a bandwidth with its unit, such as 25GB/s or 200Gbit/s, got {text[:40]!r}"
        )
    return positive(parts[1]) * _PREFIXES[parts[2]] / _PER_BYTE[parts[3]]


def _file_name(text: str) -> Path:
    """Parse the path of a result that is only written to files, not to standard output."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' (standard output) is not supported here: name a file")
    return Path(text)


def refuse_twice(paths: Sequence[str | Path], what: str) -> None:
    """Check that no file or folder is given twice, under any name.

    Args:
        paths: as they were given.
        what: what they are, for the error.

    Raises:
        ScriptError: one is given twice.
    """
    given: dict[str, str] = {}
    for path in map(str, paths):
        real_path = path if "://" in path else os.path.realpath(path)
        if real_path in given:
            earlier = f" (also as {given[real_path]})" if given[real_path] != path else ""
            raise ScriptError(f"{path} is given twice{earlier}: name each {what} once")
        given[real_path] = path


def share(text: str) -> float:
    """Parse ``0.05`` or ``5%``: a share above 0 and below 1."""
    value = finite(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"expected a share above 0 and below 1, such as 0.05 or 5%, got {text[:40]!r}"
        )
    return value
