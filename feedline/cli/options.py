"""Options shared by several commands, defined once so that their names and help agree."""

import argparse
from pathlib import Path
from typing import Any

from feedline.cli.arguments import at_least, file_name

Group = argparse._ActionsContainer  # a parser, or one of its groups

_OVERWRITE = "overwrite existing files"
_SILENT = "print nothing but errors"
STDOUT = Path("-")


def add_output(
    parser: argparse.ArgumentParser,
    output: str = "",
    metavar: str = "FILE",
    json: str = "",
    force: str = _OVERWRITE,
    quiet: str = _SILENT,
    json_to_stdout: bool = False,
    **of_output: Any,
) -> None:
    """Add ``-o``, ``--json``, ``-f`` and ``-q``, as a group of the help.

    Args:
        output: what ``-o`` writes; "": there is no such option.
        json: what ``--json FILE`` writes; "": there is no such option.
        json_to_stdout: FILE may be missing, the value then is STDOUT.
        of_output: more of ``-o``, such as ``required``.
    """
    group = parser.add_argument_group("output")
    if output:
        group.add_argument("-o", "--output", type=file_name, metavar=metavar, help=output, **of_output)
    if json:
        way: dict[str, Any] = {"type": Path, "nargs": "?", "const": STDOUT} if json_to_stdout else {"type": file_name}
        missing = "; without FILE, print it as JSON" if json_to_stdout else ""
        group.add_argument("--json", metavar="FILE", help=f"also write {json} to FILE as JSON{missing}", **way)
    group.add_argument("-f", "--force", action="store_true", help=force)
    group.add_argument("-q", "--quiet", action="store_true", help=quiet)


def add_rank_pool(group: Group) -> None:
    """Add the options for where ranks are read: in processes on this machine, or on a Dask cluster."""
    group.add_argument("--processes", type=at_least(1), metavar="N", help="number of processes on this machine (default: one per CPU)")
    group.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster of this scheduler; its workers must see the same file system"
    )


def add_training(group: Group, data_required: bool = False) -> None:
    """Add the options that describe a training: data, transforms, model, batch size."""
    group.add_argument("--data", type=Path, required=data_required, metavar="DIR", help="image folder with one subfolder per class")
    group.add_argument("--transforms", metavar="MODULE:NAME", help="torchvision transform, or a function that returns one")
    group.add_argument("--model", metavar="MODULE:NAME", help="nn.Module, its class, or a function that returns one")
    group.add_argument("--batch-size", type=at_least(1), default=32, metavar="IMAGES", help="images per batch (default: 32)")
