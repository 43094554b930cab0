"""``feedline report``."""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import positive
from feedline.profiler.errors import FeedlineError, OutputError, ScriptError
from feedline.profiler.files import output, owned, removal
from feedline.profiler.printable import say
from feedline.profiler.store import processes

if TYPE_CHECKING:
    from feedline.analysis.between_ranks import Beside
    from feedline.analysis.model import Report as ReportModel
    from feedline.analysis.traces.windows import Windows
    from feedline.profiler.ceilings import Ceilings
    from feedline.profiler.store.read import Run
    from feedline.profiler.store.trainings import Training

TRACE_FILE = "trace.json.gz"
STEPS = ("compacting records", "reading records", "writing the report", "writing the trace")


class Report:
    """Show a run: in the terminal, as HTML, JSON, text, or a trace for Perfetto.

    feedline report runs/train-1121-0943
    feedline report runs/train-1121-0943 -o report.html      also .json, .txt, .trace.json.gz
    feedline report runs/train-1121-0943 --ceilings ceilings.json

    Works on runs that ended, were killed, or are still running. Without -o it also writes report.html, report.json and trace.json.gz into
    the run folder. What it prints ends with the verdict, what to change, what that would give, and where the files are.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write only this file; its ending chooses the format")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite the file")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
        parser.add_argument("--full", action="store_true", help="print all of the report instead of about 40 lines")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
        parser.add_argument(
            "--ceilings",
            type=Path,
            metavar="FILE",
            action="append",
            help="what the parts of the machine can do, from feedline probe or compare, for the roofline; may be given twice. "
            "Default: ceilings.json in the run folder",
        )
        parser.add_argument(
            "--link-gbps", type=positive, metavar="N", help="what the network gives a rank by its data sheet, in GB/s one way"
        )
        parser.add_argument("--nccl-log", type=Path, metavar="FILE", help="what the training printed with NCCL_DEBUG=INFO")
        parser.add_argument("--finish", action="store_true", help=argparse.SUPPRESS)  # compact the records of ranks that ended
        parser.add_argument("--wait", type=float, default=0.0, help=argparse.SUPPRESS)  # seconds to wait for other ranks to end

    def run(self, args: argparse.Namespace) -> int:
        for file in (args.output, args.json):
            output.refuse_taken(file, args.force)

        from feedline.analysis import reports
        from feedline.analysis.reports import overview
        from feedline.analysis.reports.console import Console
        from feedline.analysis.reports.progress import building
        from feedline.profiler.store.read import Run
        from feedline.profiler.store.trainings import trainings, workers

        console = Console(quiet=args.quiet)
        with removal.held(args.run), building(Console(stderr=True, quiet=args.quiet), STEPS) as done:
            if args.finish:
                finish(args.run, args.wait)
            done()
            found = trainings(args.run)
            if len(found) > 1 and args.output is not None:
                Run.open(args.run)  # raises: which of them?
            told = [(one, *one_report(args, one, found, done)) for one in found]
            if args.json is not None:  # the last of all: with it the command is done, and Ctrl-C before leaves no file in its way
                output.save(args.json, reports.text(told[-1][1], Path("report.json")))
                told[-1][2].append(args.json)
        if args.output is None and not args.quiet:
            if len(told) > 1:
                notes = processes.notes(args.run, {one.name for one in found}, workers(found))
                overview.to_terminal([(name_of(one, args.run), report) for one, report, _ in told], notes, console)
            else:
                _, report, written = told[0]
                reports.to_terminal(report, console, args.full, written)
                return 0
        for _, _, written in told:
            for path in written:
                console.print(f"  {os.path.relpath(path)}", soft_wrap=True)
        return 0


def name_of(training: "Training", run: Path) -> str:
    """For the overview; the program's own process has the run folder for its own."""
    return "the program itself" if training.folder == run else training.name


def one_report(
    args: argparse.Namespace, training: "Training", found: "list[Training]", done: Callable[[], None]
) -> "tuple[ReportModel, list[Path]]":
    """Build the report of one training, and write it: into the run folder where it is the only one, else into its own."""
    from feedline.analysis import build, trace
    from feedline.analysis.traces.report import holds_traces
    from feedline.analysis.traces.windows import windows as find_windows
    from feedline.profiler.store.trainings import workers

    run, several = training.run, len(found) > 1
    traces = holds_traces(run)
    windows = None if traces or (args.output is not None and not trace.is_trace(args.output)) else find_windows(run)
    report = (
        of_traces(run)
        if traces
        else build.build(run, ceilings=ceilings(args.run, args.ceilings), beside=beside(args.link_gbps, args.nccl_log))
    )
    notes = [*report.notes, *(windows.notes if windows is not None else [])]
    if not several:
        notes += processes.notes(args.run, {one.name for one in found}, workers(found))
    report = replace(report, notes=notes)
    done()
    folder = training.folder if several else args.run
    written = write(folder, report, args)
    done()
    if windows is not None:
        written += write_trace(folder, run, args, windows)
    return report, written


def of_traces(run: "Run") -> "ReportModel":
    """The report of traces, all ranks at once."""
    from feedline.analysis.many import crew
    from feedline.analysis.traces.report import build

    with crew.here() if len(run.ranks) == 1 else crew.local() as workers:
        return build(run, workers)


def ceilings(run: Path, files: list[Path] | None) -> "Ceilings | None":
    """What was measured of the machine; several files as one.

    Raises:
        CeilingsDamaged, SchemaTooNew: a file cannot be read.
    """
    from feedline.profiler.ceilings import FILE, Ceilings

    own = [Ceilings.read(run / FILE, in_run=True)] if not files and os.path.lexists(run / FILE) else []
    found = own or [Ceilings.read(file) for file in files or []]
    return Ceilings.joined(found) if found else None


def beside(link_gbps: float | None, nccl_log: Path | None) -> "Beside":
    """What no run folder holds.

    Raises:
        ScriptError: the log cannot be read.
    """
    from feedline.analysis.between_ranks import Beside

    try:
        lines = nccl_log.read_text(errors="replace").splitlines() if nccl_log else []
    except OSError as error:
        raise ScriptError(f"--nccl-log {nccl_log}: cannot be read ({error.strerror}): name what NCCL_DEBUG=INFO printed") from error
    return Beside(link_gbps * 1e9 if link_gbps else None, tuple(lines))


def finish(path: Path, wait_s: float) -> None:
    """Wait for the ranks of one launch to end, and compact the records of those that did. What cannot be compacted stays as it is."""
    from feedline.profiler.store.compact import compact
    from feedline.profiler.store.layout import SEGMENTS
    from feedline.profiler.store.read import Run, rank_folders
    from feedline.profiler.store.trainings import inner_folders

    deadline = time.monotonic() + wait_s
    while True:
        runs = [Run.of_folder(folder) for folder in [path, *inner_folders(path)] if rank_folders(folder)]
        if time.monotonic() > deadline or all(map(ended, runs)):
            break
        time.sleep(0.2)
    for rank in (rank for run in runs for rank in run.ranks.values()):
        if rank.manifest.ended and (rank.folder / SEGMENTS).exists():
            try:
                compact(rank.folder)
            except (OSError, FeedlineError) as error:
                why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
                say(f"{rank.folder} stays uncompacted ({why}): reading it takes longer, nothing is lost")


def ended(run: "Run") -> bool:
    """Whether all ranks of a launch are there, and none goes on."""
    ranks = run.ranks.values()
    world = max(int(str(rank.manifest.place.get("world_size", 1))) for rank in ranks)
    return len(ranks) >= world and all(rank.manifest.state != "live" for rank in ranks)


def write(folder: Path, report: "ReportModel", args: argparse.Namespace) -> list[Path]:
    """Write the files that were asked for; a run folder that is read-only gets none, and the terminal shows the report still."""
    from feedline.analysis import reports, trace

    written: list[Path] = []
    if args.output is not None and not trace.is_trace(args.output):
        reports.write(report, args.output)
        written.append(args.output)
    if args.output is None:
        for name in ("report.html", "report.json"):
            try:
                owned.write(folder, name, reports.text(report, Path(name)))
                written.append(folder / name)
            except (OSError, FeedlineError) as error:
                say(f"{folder / name} cannot be written ({error.strerror})" if isinstance(error, OSError) else error)
    return written


def write_trace(folder: Path, run: "Run", args: argparse.Namespace, windows: "Windows") -> list[Path]:
    """Write the trace for Perfetto, into the run folder or where it was asked for; there is no report then, so it says itself what is
    missing."""
    from feedline.analysis import trace

    path = args.output or folder / TRACE_FILE
    try:
        if args.output is not None:
            notes = trace.write(run, path, windows)
        else:
            with owned.replacing(folder, TRACE_FILE) as file:
                notes = trace.write_into(run, file, True, windows)
        for note in [] if args.quiet else notes if args.output is None else [*windows.notes, *notes]:
            say(note)
    except (OSError, OutputError) as error:
        if args.output is not None:
            raise
        say(f"{path} cannot be written ({error.strerror})" if isinstance(error, OSError) else error)
        return []
    return [path]
