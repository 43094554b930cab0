"""``feedline ingest``."""

import argparse
import os
import time
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import at_least, refuse_twice
from feedline.profiler.errors import ELSEWHERE, OVERWRITE, FeedlineError, Interrupted, PlaceTaken, RankCollision, ScriptError, TraceDamaged
from feedline.profiler.files import single
from feedline.profiler.files.lists import some
from feedline.profiler.files.output import refuse_taken
from feedline.profiler.printable import say
from feedline.profiler.ranks import MOST_RANKS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from feedline.analysis.many.crew import Crew


class Ingest:
    """Make a run of traces that other tools recorded: torch.profiler's JSON (Kineto), Nsight Systems' SQLite; one file per rank.

    feedline ingest trace.json.gz
    feedline ingest traces/rank*.json.gz -o runs/eight
    feedline ingest a.json b.json --rank a.json=0 --rank b.json=1
    feedline ingest report.sqlite                       from: nsys export --type sqlite report.nsys-rep

    Ends in the report: budget of the step, input stall, exposed communication, who waited for whom. A file that cannot be read is named,
    the others go on (exit code 65 then).
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", nargs="+", metavar="FILE", help="a trace: a path, or for JSON an address such as s3://...")
        parser.add_argument("-o", "--output", type=Path, metavar="RUN", help="run folder to make (default: runs/FILE-TIME)")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite an older run there")
        parser.add_argument("-q", "--quiet", action="store_true", help="make the run folder only; `feedline report RUN` shows it later")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
        parser.add_argument("--rank", action="append", default=[], metavar="FILE=N", help="the rank of a file that does not say it")
        parser.add_argument(
            "--limit", type=at_least(1, 10**12), metavar="EVENTS", help="refuse traces of more events (default: 100,000,000)"
        )
        parser.add_argument("--processes", type=at_least(1), metavar="N", help="number of files to read in parallel (default: one per CPU)")
        parser.add_argument("--dask", metavar="ADDRESS", help="read them on the cluster of this scheduler, which shares this file system")

    def run(self, args: argparse.Namespace) -> int:
        output = args.output or Path("runs") / f"{Path(args.file[0].rstrip('/')).name.split('.')[0]}-{time.strftime('%m%d-%H%M%S')}"
        given = ranks(args.rank, args.file)
        refuse_twice(args.file, "trace")
        refuse_copies(args.file)
        command = ["feedline", "ingest", *args.file]
        refuse_taken(args.json, args.force)
        read_before = not args.force and not args.quiet and waits_for_report(output, command)
        if os.path.lexists(output) and not args.force and not read_before:
            raise PlaceTaken(f"{output} exists already", ELSEWHERE, OVERWRITE)

        from feedline.analysis.traces.ingest import ingest
        from feedline.analysis.traces.kineto.limits import DEFAULT, Limits
        from feedline.cli.report import Report
        from feedline.cli.work import working

        limits = Limits.of(args.limit) if args.limit else DEFAULT
        problems: dict[str, str] = {}
        try:
            if read_before:
                say(f"{output} has these traces already: making its report")
            else:
                with crew_for(args, len(args.file)) as crew, working(args.quiet) as tell:
                    problems = ingest(args.file, output, crew, given, limits, command, tell, args.force).problems
            for problem in problems.values():
                say(f"left out: {problem}")
            if not args.quiet or args.json:
                Report().run(argparse.Namespace(
                    run=output, output=None, force=args.force, quiet=args.quiet, json=args.json, ceilings=None, link_gbps=None,
                    nccl_log=None, full=False, training=None, finish=False, wait=0.0))  # fmt: skip
        except KeyboardInterrupt as error:
            if not waits_for_report(output, command):
                raise
            raise Interrupted(f"interrupted: {output} has the traces and lacks the report, which feedline report {output} makes") from error
        return TraceDamaged.exit_code if problems else 0


def refuse_copies(files: list[str]) -> None:
    """See that no trace is there twice as two files of the same bytes: two ranks never record the same times.

    Raises:
        RankCollision: one is.
    """
    import filecmp

    sizes: dict[int, list[str]] = {}
    for file in files:
        if single.is_regular(Path(file)):
            sizes.setdefault(os.path.getsize(file), []).append(file)
    for one, other in (pair for alike in sizes.values() for pair in combinations(alike, 2)):
        with suppress(OSError):
            if filecmp.cmp(one, other, shallow=False):
                raise RankCollision(f"{one} and {other} are the same trace: name one of them")


def waits_for_report(run: Path, command: list[str]) -> bool:
    """Whether a run folder is what this very command made before it was interrupted in the report."""
    from feedline.profiler.record.privacy import mask_argv
    from feedline.profiler.store.read import Run

    if os.path.lexists(run / "report.json"):
        return False
    try:
        return any(rank.manifest.command == mask_argv(command) for rank in Run.open(run).ranks.values())
    except (FeedlineError, OSError):
        return False


def crew_for(args: argparse.Namespace, parts: int) -> "AbstractContextManager[Crew]":
    """Who does work of so many parts."""
    from feedline.analysis.many import crew

    if args.dask:
        return crew.dask(args.dask)
    return crew.here() if parts == 1 or args.processes == 1 else crew.local(args.processes)


def ranks(given: list[str], files: list[str]) -> dict[str, int]:
    """What ``--rank FILE=N`` says.

    Args:
        files: the traces: their paths, or their names without the folders.

    Raises:
        ScriptError: it does not have this form, its file is not among the traces, or it says two ranks.
    """
    found: dict[str, int] = {}
    for text in given:
        file, _, number = text.rpartition("=")
        if not file or not number.isdecimal() or not len(number) <= 20 or int(number) >= MOST_RANKS:
            raise ScriptError(f"--rank {text}: write FILE=N, with the number of the rank (below {MOST_RANKS:,}) after the last =")
        if file not in files and file not in map(os.path.basename, files):
            raise ScriptError(f"--rank {text}: {file} is not one of the traces; they are {some(files)}")
        if found.setdefault(file, int(number)) != int(number):
            raise ScriptError(f"--rank {text}: {file} has rank {found[file]} already: give each trace one rank")
    return found
