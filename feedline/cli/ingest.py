"""``feedline ingest``."""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler.errors import PlaceTaken, ScriptError, TraceDamaged
from feedline.profiler.files.output import refuse_taken
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from feedline.analysis.many.crew import Crew


class Ingest:
    """Make a run of traces that other tools recorded: torch.profiler's JSON (Kineto), Nsight Systems' SQLite; one file a rank.

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
        parser.add_argument("--limit", type=int, metavar="EVENTS", help="refuse traces of more events (default: 100,000,000)")
        parser.add_argument("--processes", type=int, metavar="N", help="read so many files at a time (default: one for each CPU)")
        parser.add_argument("--dask", metavar="ADDRESS", help="read them on the cluster of this scheduler, which shares this file system")

    def run(self, args: argparse.Namespace) -> int:
        output = args.output or Path("runs") / f"{Path(args.file[0].rstrip('/')).name.split('.')[0]}-{time.strftime('%m%d-%H%M%S')}"
        if os.path.lexists(output) and not args.force:
            raise PlaceTaken(f"{output} exists already: name another folder with -o, or overwrite it with -f")
        refuse_taken(args.json, args.force)

        from feedline.analysis.traces.ingest import ingest
        from feedline.analysis.traces.kineto.limits import DEFAULT, Limits
        from feedline.cli.report import Report
        from feedline.cli.work import working

        limits = Limits.of(args.limit) if args.limit else DEFAULT
        with crew_for(args, len(args.file)) as crew, working(args.quiet) as tell:
            made = ingest(args.file, output, crew, ranks(args.rank), limits, ["feedline", "ingest", *args.file], tell, args.force)
        for problem in made.problems.values():
            say(f"left out: {problem}")
        if not args.quiet or args.json:
            Report().run(argparse.Namespace(
                run=output, output=None, force=args.force, quiet=args.quiet, json=args.json, ceilings=None, link_gbps=None, nccl_log=None,
                finish=False, wait=0.0, full=False))  # fmt: skip
        return TraceDamaged.exit_code if made.problems else 0


def crew_for(args: argparse.Namespace, parts: int) -> "AbstractContextManager[Crew]":
    """Who does work of so many parts."""
    from feedline.analysis.many import crew

    if args.dask:
        return crew.dask(args.dask)
    return crew.here() if parts == 1 or args.processes == 1 else crew.local(args.processes)


def ranks(given: list[str]) -> dict[str, int]:
    """What ``--rank FILE=N`` says.

    Raises:
        ScriptError: it does not have this form.
    """
    found = {}
    for text in given:
        file, _, number = text.rpartition("=")
        if not file or not number.isdecimal():
            raise ScriptError(f"--rank {text}: write FILE=N, with the number of the rank after the last =")
        found[file] = int(number)
    return found
