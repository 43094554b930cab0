"""Output of commands: checked before the work, written after it, and listed at the end."""

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler.files import output, results

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import Tell
    from feedline.analysis.report.console import Console

save = output.save


def check_files(args: argparse.Namespace) -> None:
    """Check, before any work, that the files of ``-o FILE`` and ``--json FILE`` may be written.

    Raises OutputError.
    """
    for path in (getattr(args, "output", None), getattr(args, "json", None)):
        output.refuse_taken(path, args.force)


def check_json(args: argparse.Namespace) -> None:
    """Check the file of ``--json FILE`` only, for commands whose ``-o`` is a folder.

    Raises OutputError.
    """
    output.refuse_taken(args.json, args.force)


def default_folder(name: str, at: str = "") -> Path:
    """Return the default of ``-o FOLDER``.

    Args:
        name: what the folder's name begins with.
        at: time that the name ends with; "": now.
    """
    return Path("runs") / f"{name}-{at or time.strftime('%m%d-%H%M%S')}"


def make_folder(args: argparse.Namespace, command: str, names: Iterable[str]) -> tuple[Path, bool]:
    """Create the folder of ``-o``, or one below runs/; also return whether it is new.

    Args:
        args: the command line.
        command: what the name of a folder below runs/ begins with.
        names: of the results.

    Raises:
        OutputError: a name is taken, also that of ``--json``, or the folder cannot be made.
    """
    check_json(args)
    folder: Path = args.output or default_folder(command)
    return folder, results.prepare(folder, names, args.force)


def save_json(path: Path, value: object) -> None:
    """Write a JSON file that was checked before. Raises OutputError."""
    save(path, json.dumps(value, indent=1))


def print_json(value: object) -> None:
    """Print JSON, in which whatever is not ASCII is escaped, as the only output of a command."""
    print(json.dumps(value, indent=1))


def name_files(console: "Console", files: Iterable[Path]) -> None:
    """List the result files: the last lines on the screen."""
    for file in files:
        console.print(f"  {os.path.relpath(file)}", soft_wrap=True)


@contextmanager
def progress_bar(quiet: bool, first: str = "starting") -> "Iterator[Tell]":
    """Show a progress bar on standard error if it is a terminal.

    Call what is yielded to move it: (what, done, of).
    """
    from rich.progress import BarColumn, Progress

    from feedline.analysis.report.console import Console, Count, Words

    console = Console(stderr=True, quiet=quiet)
    columns = (Words("{task.description}"), BarColumn(bar_width=20), Count())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(first, total=None)
        yield lambda what, done, of: progress.update(
            task, description=what, completed=done, total=of
        )
