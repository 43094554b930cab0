"""Output of commands: checked before the work, written after it, and listed at the end."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import STDOUT
from feedline.profiler.errors import PlaceTaken
from feedline.profiler.files import output, own_folders, results
from feedline.profiler.printable import say
from feedline.profiler.store.layout import parse_rank_folder

if TYPE_CHECKING:
    from feedline.analysis.ranks.many.rank_pool import Tell
    from feedline.analysis.report.console import Console

_LOG_EVERY_S = 10.0  # between lines of progress in a log
_WRITTEN = ("output", "json", "junit", "markdown", "names")  # what names files to write


def save(path: Path, text: str) -> None:
    """Write a file that was checked before, or print its text if it is "-". Raises OutputError."""
    if path == STDOUT:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    else:
        output.save(path, text)


def console_for(args: argparse.Namespace) -> "Console":
    """Return the console of a command: silent if asked for, or if JSON is printed instead."""
    from feedline.analysis.report.console import Console

    return Console(quiet=args.quiet or getattr(args, "json", None) == STDOUT)


def check_files(args: argparse.Namespace) -> None:
    """Check, before any work, that the files of ``-o FILE`` and ``--json FILE`` may be written.

    Raises OutputError.
    """
    check_file(getattr(args, "output", None), args)
    if hasattr(args, "json"):
        check_json(args)


def check_file(path: Path | None, args: argparse.Namespace) -> None:
    """Check, before any work, that a file may be written; None: none was asked for.

    ``-f`` overwrites results, but neither what the command reads nor records of a run.

    Raises OutputError.
    """
    output.refuse_taken(path, args.force)
    if path is None or not os.path.isfile(path):
        return
    if any(os.path.exists(word) and os.path.samefile(word, path) for word in _given(args)):
        raise PlaceTaken(f"{path} is also read by this command", output.ANOTHER)
    if any(_is_of_rank(folder) for folder in path.absolute().parents):
        raise PlaceTaken(f"{path} is a part of a recorded run", output.ANOTHER)


def _given(args: argparse.Namespace) -> Iterator[str]:
    """Yield what a command line names that is read, but no arguments of a script."""
    for name, value in vars(args).items():
        if name not in _WRITTEN and not (name == "args" and hasattr(args, "script")):
            for word in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(word, (str, Path)):
                    yield str(word)


def _is_of_rank(folder: Path) -> bool:
    """Return whether feedline made this folder for the records of a rank."""
    if parse_rank_folder(folder.name) is None:
        return False
    try:
        listing = own_folders.read_list(folder)
    except OSError:
        return False
    return listing is not None and listing.kind == own_folders.INNER_KIND


def check_json(args: argparse.Namespace) -> None:
    """Check the file of ``--json FILE`` only, for commands whose ``-o`` is a folder.

    Raises OutputError.
    """
    if args.json != STDOUT:
        check_file(args.json, args)


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
    """Write JSON where ``--json`` says. Raises OutputError."""
    save(path, json.dumps(value, indent=1))


def name_files(console: "Console", files: Iterable[Path]) -> None:
    """List the result files: the last lines on the screen."""
    label = "Written"
    for file in files:
        if file == STDOUT:
            continue
        console.print(f"{label:7}  {os.path.relpath(file)}", soft_wrap=True)
        label = ""


class _ProgressLog:
    """Progress in a log: a line at most every ten seconds."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._last = quiet, time.monotonic()

    def __call__(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if not self._quiet and now - self._last >= _LOG_EVERY_S:
            self._last = now
            say(f"{what} ({done}/{of})" if of else what)


@contextmanager
def progress_bar(quiet: bool, first: str = "starting") -> "Iterator[Tell]":
    """Show a progress bar on standard error; in a log, a line now and then.

    Call what is yielded to move it: (what, done, of).
    """
    from rich.progress import BarColumn, Progress

    from feedline.analysis.report.console import Console, Count, Words

    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield _ProgressLog(quiet)
        return
    columns = (Words("{task.description}"), BarColumn(bar_width=20), Count())
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(first, total=None)
        yield lambda what, done, of: progress.update(
            task, description=what, completed=done, total=of
        )
