"""Runs as a person names them: a folder, a name below runs/, or the newest run there."""

import argparse
import os
from pathlib import Path

from feedline.profiler.errors import RunNotFound, ScriptError
from feedline.profiler.files import own_folders
from feedline.profiler.printable import say
from feedline.profiler.store.layout import MANIFEST, parse_rank_folder

_RUNS = Path("runs")
HELP = "run folder, or its name in runs/"
_INNER = "training-1"  # of a run whose own process did not train


def run_path(text: str) -> Path:
    """Parse a run folder: a path, or a name below runs/ if there is no such run here."""
    path = Path(text)
    if path.is_absolute() or not path.parts or _holds_run(Path(path.parts[0])):
        return path
    below = _RUNS / path
    if _holds_run(_RUNS / path.parts[0]) and not _holds_run(path):
        return below
    return below if below.is_dir() and not os.path.lexists(path) else path


def names_run(text: str) -> bool:
    """Return whether a word is a run folder, or the name of one below runs/."""
    return bool(text) and _holds_run(run_path(text))


def _newest_run() -> Path:
    """Return the run below runs/ that began last.

    Raises:
        RunNotFound: there is none.
    """
    try:
        runs = [path for path in _RUNS.iterdir() if _holds_run(path)]
    except OSError:
        runs = []
    if not runs:
        raise RunNotFound(
            f"no run below {_RUNS}/ in this folder: record one with feedline run train.py, or name "
            f"a run folder"
        )
    return max(runs, key=_begun_ns)


def _holds_run(path: Path) -> bool:
    """Return whether feedline made this folder for a run, or it has the folder of a rank."""
    try:
        listing = own_folders.read_list(path)
        if listing is not None:
            return listing.kind == "run"
        return any(parse_rank_folder(name) is not None for name in os.listdir(path))
    except OSError:
        return False


def _begun_ns(run: Path) -> int:
    """Return when a run began, as its first rank wrote it down; else when its folder changed."""
    from feedline.profiler.errors import FeedlineError
    from feedline.profiler.store.manifest import Manifest

    for folder in (run, run / _INNER):
        try:
            ranks = sorted(name for name in os.listdir(folder) if parse_rank_folder(name))
            anchors = Manifest.read(folder / ranks[0]).anchors if ranks else []
        except (OSError, FeedlineError):
            continue
        if anchors:
            return anchors[0]["time_ns"]
        if ranks:
            return (folder / ranks[0] / MANIFEST).stat().st_mtime_ns
    return run.stat().st_mtime_ns


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN; without it, ``chosen_run`` takes the newest."""
    parser.add_argument(
        "run",
        type=run_path,
        nargs="?",
        metavar="RUN",
        help=f"{HELP} (default: the newest in runs/)",
    )


def chosen_run(args: argparse.Namespace, command: str) -> Path:
    """Return RUN, or the newest run, which is then named.

    Raises:
        RunNotFound: there is none. ScriptError: a run folder was taken for the file of ``--json``.
    """
    given: Path | None = args.run or None
    if given is not None:
        return given
    if args.json is not None and names_run(str(args.json)):
        raise ScriptError(
            f"{args.json} is a run, and --json needs a file: feedline {command} {args.json} --json "
            f"FILE, or --json - to print it"
        )
    newest = _newest_run()
    if not args.quiet:
        say(f"{newest} is the newest run")
    return newest
