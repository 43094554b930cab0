"""``feedline report``."""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.arguments import bandwidth
from feedline.cli.options import add_output, add_rank_pool
from feedline.cli.output import check_files, name_files, save
from feedline.cli.parser import Parser
from feedline.profiler.errors import FeedlineError, OutputError, ScriptError
from feedline.profiler.files import own_folders, owned
from feedline.profiler.printable import say
from feedline.profiler.store import process_log

if TYPE_CHECKING:
    from feedline.analysis.explain.model import Report as ReportModel
    from feedline.analysis.ranks.comparison import NetworkHints
    from feedline.analysis.traces.windows import Windows
    from feedline.cli.report_parts import Told
    from feedline.profiler.store.run_folder import Run
    from feedline.profiler.store.trainings import Training

_TRACE_FILE = "trace.json.gz"
_BY_RANK_ONLY = ("dask", "processes")
_REPORT_ONLY = ("full", "training", "ceilings", "link_bandwidth", "nccl_log")
_STEPS = ("compacting records", "reading records", "writing the report", "writing the trace")


class Report:
    """Show the report of a run, or write it as HTML, JSON, text or a Perfetto trace.

    Works for finished, killed and live runs. Without -o, report.html, report.json and trace.json.gz are also written into the run
    folder. The last lines printed are the verdict, what to change, the expected gain, and where the files are.

    If RUN holds several trainings, an overview is shown. Each training has its own report: those of
    separate processes in RUN/training-N (training-0: the script itself), consecutive ones of one process in RUN/parts/N. A file written
    with -o contains the overview and all reports.

    With --by-rank, the ranks of a large run are read in parallel and compared: which rank the others wait for, and how long. Several
    folders (one per node) and addresses that fsspec can open (s3://...) are accepted; missing, restarted or killed ranks are named.

    Examples:
        feedline report runs/train-1121-0943
        feedline report runs/train-1121-0943 -o report.html    # or .json, .txt, .trace.json.gz
        feedline report --by-rank /nodes/0/run /nodes/1/run
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", nargs="+", metavar="RUN", help="run folder; several only with --by-rank")
        shown = parser.add_argument_group("what to show")
        shown.add_argument("--full", action="store_true", help="print the whole report instead of about 40 lines")
        shown.add_argument("--training", type=int, metavar="N", help="show only the Nth of the training runs that ran in one process")
        shown.add_argument(
            "--ceilings",
            type=Path,
            metavar="FILE",
            action="append",
            help="measured limits of this machine for the roofline, from `feedline probe` or `feedline compare`; may be repeated (default: "
            "ceilings.json in the run folder)",
        )
        shown.add_argument(
            "--link-bandwidth",
            type=bandwidth,
            metavar="RATE",
            help="nominal bandwidth of a rank's network link in one direction, with its unit: 25GB/s or 200Gbit/s",
        )
        shown.add_argument(
            "--nccl-log", type=Path, metavar="FILE", help="output of the training with NCCL_DEBUG=INFO: adds what NCCL chose"
        )
        ranks = parser.add_argument_group("comparing ranks")
        ranks.add_argument("--by-rank", action="store_true", help="compare the ranks of one run instead")
        add_rank_pool(ranks)
        add_output(parser, "write only this file; the extension selects the format", json="the report")
        parser.add_argument("--finish", action="store_true", help=argparse.SUPPRESS)  # compact the records of ranks that ended
        parser.add_argument("--wait", type=float, default=0.0, help=argparse.SUPPRESS)  # seconds to wait for other ranks to end

    def run(self, args: argparse.Namespace) -> int:
        if args.by_rank:
            return _compare_ranks(args)
        _refuse_misplaced(args, _BY_RANK_ONLY, "needs --by-rank")
        if len(args.run) > 1:
            raise ScriptError("several run folders can only be compared by rank: add --by-rank, or give one run folder")
        check_files(args)

        from feedline.analysis import report as reports
        from feedline.analysis.explain.pipeline import place
        from feedline.analysis.report import overview
        from feedline.analysis.report.console import Console
        from feedline.analysis.report.progress import building
        from feedline.analysis.report.trace import is_trace
        from feedline.cli.report_parts import write_overview
        from feedline.profiler.store.trainings import PARTS_FOLDER, open_run, trainings, worker_pids

        console = Console(quiet=args.quiet)
        path, number = place(Path(args.run[0]), args.training)
        with own_folders.held(path), building(Console(stderr=True, quiet=args.quiet), _STEPS) as done:
            if args.finish:
                _finish(path, args.wait)
            done()
            found = trainings(path)
            if len(found) > 1 and (number is not None or args.output is not None and is_trace(args.output)):
                open_run(path)  # raises: which of them?
            notes = process_log.notes(path, {one.name for one in found}, worker_pids(found))
            told = [_told_of(args, path, number, one, len(found) > 1, notes, done) for one in found]
            rows = [row for own in told for row in own.rows]
            outside = told[0].outside if len(told) == 1 else None
            shown = overview.Overview(path.name, [], rows, outside, [*told[0].notes, *notes])
            written = [file for own in told for file in own.written]
            made = [report for own in told for report in own.reports]
            if len(told) > 1:
                written += write_overview(path, shown, made, args)
            if args.json is not None:  # the last of all: with it the command is done, and Ctrl-C before leaves no file in its way
                save(args.json, overview.render_json(shown, made) if len(rows) > 1 else reports.text(made[0], Path("report.json")))
                written.append(args.json)
        if args.output is None and not args.quiet:
            if len(rows) > 1:
                overview.show(shown, console)
            else:
                reports.to_terminal(made[0], console, args.full, written, path if number is None else path / PARTS_FOLDER / str(number))
                return 0
        name_files(console, written)
        return 0


def _compare_ranks(args: argparse.Namespace) -> int:
    """The mode ``--by-rank``."""
    from feedline.cli.ranks import show_ranks

    _refuse_misplaced(args, _REPORT_ONLY, "cannot be combined with --by-rank")
    if args.output is not None:
        raise ScriptError("--by-rank prints a table: write it as JSON with --json FILE, and leave out -o")
    return show_ranks(args)


def _refuse_misplaced(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Check that no option was given that the mode ignores. Raises ScriptError."""
    for name in names:
        if getattr(args, name):
            raise ScriptError(f"--{name.replace('_', '-')} {why}")


def show_run(run: Path, *options: str) -> None:
    """Run the command with these options. Raises FeedlineError."""
    command, parser = Report(), Parser(prog="feedline report")
    command.prepare_parser(parser)
    command.run(parser.parse_args([*options, "--", str(run)]))


def _told_of(
    args: argparse.Namespace,
    path: Path,
    number: int | None,
    training: "Training",
    several: bool,
    notes: list[str],
    done: Callable[[], None],
) -> "Told":
    """Build the report of one process's training and write it: into the run folder if it is the only one, else into its own.

    Of several that the process made one after the other: a report for each, and an overview.
    """
    from feedline.analysis.explain import tried
    from feedline.analysis.explain.build_traces import holds_traces
    from feedline.analysis.explain.pipeline import ceilings_of, of_process, report_of
    from feedline.analysis.report import trace
    from feedline.analysis.traces.windows import read_windows as find_windows
    from feedline.cli.report_parts import one_training, several_trainings
    from feedline.profiler.store.trainings import TRAINING_PREFIX

    run, folder = training.run, training.folder if several else path
    traces = holds_traces(run)
    drawn = args.output is None and number is None or args.output is not None and trace.is_trace(args.output)
    windows = find_windows(run) if drawn and not traces else None
    known, net = ceilings_of(path, args.ceilings), _beside(args.link_bandwidth, args.nccl_log)
    own = of_process(run, number)
    name = training.name.removeprefix(TRAINING_PREFIX) if several else ""

    def made_of(one: "Run") -> "ReportModel":
        report = report_of(one, known, net)
        before, more = ([], []) if several or len(own) > 1 else ([trial.says() for trial in tried.of_run(path)], notes)
        return replace(report, notes=[*before, *report.notes, *(windows.notes if windows is not None else []), *more])

    if len(own) > 1:
        told = several_trainings(path, folder, run, own, made_of, name, args)
    else:
        told = one_training(path, folder if number is None else own[0].path, made_of(own[0]), name, args)
    done()
    done()
    if windows is not None:
        told.written.extend(_write_trace(folder, run, args, windows))
    return told


def _beside(link_bandwidth: float | None, nccl_log: Path | None) -> "NetworkHints":
    """Facts about the network that are not in a run folder.

    Args:
        link_bandwidth: bytes/s.

    Raises:
        ScriptError: the log cannot be read.
    """
    from feedline.analysis.ranks.comparison import NetworkHints

    try:
        lines = nccl_log.read_text(errors="replace").splitlines() if nccl_log else []
    except OSError as error:
        wanted = "give the output of a training run with NCCL_DEBUG=INFO"
        raise ScriptError(f"--nccl-log: cannot read {nccl_log} ({error.strerror}): {wanted}") from error
    return NetworkHints(link_bandwidth, tuple(lines))


def _finish(path: Path, wait_s: float) -> None:
    """Wait for the ranks of one launch to end, and compact their records. Records that cannot be compacted stay unchanged."""
    from feedline.profiler.store.compact import compact
    from feedline.profiler.store.layout import SEGMENTS
    from feedline.profiler.store.run_folder import Run, rank_folders
    from feedline.profiler.store.trainings import inner_trainings

    deadline = time.monotonic() + wait_s
    while True:
        runs = [Run.of_folder(folder) for folder in [path, *inner_trainings(path)] if rank_folders(folder)]
        if time.monotonic() > deadline or all(map(_ended, runs)):
            break
        time.sleep(0.2)
    for rank in (rank for run in runs for rank in run.ranks.values()):
        if rank.manifest.ended and (rank.folder / SEGMENTS).exists():
            try:
                compact(rank.folder)
            except (OSError, FeedlineError) as error:
                why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
                say(f"cannot compact {rank.folder} ({why}): no data is lost, but reading takes longer")


def _ended(run: "Run") -> bool:
    """Whether all ranks of a launch are present and have ended."""
    ranks = run.ranks.values()
    world = max(int(str(rank.manifest.place.get("world_size", 1))) for rank in ranks)
    return len(ranks) >= world and all(rank.manifest.state != "live" for rank in ranks)


def _write_trace(folder: Path, run: "Run", args: argparse.Namespace, windows: "Windows") -> list[Path]:
    """Write the trace for Perfetto, into the run folder or to a given file. With -o, which writes no report, its notes are printed."""
    from feedline.analysis.report import trace

    path = args.output or folder / _TRACE_FILE
    try:
        if args.output is not None:
            notes = trace.write(run, path, windows)
        else:
            with owned.replacing(folder, _TRACE_FILE) as file:
                notes = trace.write_into(run, file, True, windows)
        for note in [] if args.quiet else notes if args.output is None else [*windows.notes, *notes]:
            say(note)
    except (OSError, OutputError) as error:
        if args.output is not None:
            raise
        say(OutputError.unwritable(path, error) if isinstance(error, OSError) else error)
        return []
    return [path]
