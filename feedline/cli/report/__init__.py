"""``feedline report``."""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.options import (
    STDOUT,
    add_output,
    add_rank_pool,
    bandwidth,
    rank_pool,
    refuse_twice,
)
from feedline.cli.outputs import (
    check_files,
    check_json,
    console_for,
    name_files,
    progress_bar,
    save,
    save_json,
)
from feedline.cli.parser import Parser
from feedline.cli.runs import HELP, names_run, newest_run, run_path
from feedline.profiler.errors import FeedlineError, OutputError, ScriptError
from feedline.profiler.files import own_folders, owned
from feedline.profiler.printable import printable, say
from feedline.profiler.store.process_log import notes as unreported_processes

if TYPE_CHECKING:
    from feedline.analysis.explain.model import Report
    from feedline.analysis.ranks.comparison import NetworkHints
    from feedline.analysis.report.overview import Outside, Overview, Row
    from feedline.analysis.traces.windows import Windows
    from feedline.profiler.store.run_folder import Run
    from feedline.profiler.store.trainings import Training

_TRACE_FILE = "trace.json.gz"
_BY_RANK_ONLY = ("dask", "processes")
_REPORT_ONLY = ("full", "format", "html", "training", "ceilings", "link_bandwidth", "nccl_log")
_FORMATS = ("text", "markdown", "json", "html")
_STEPS = ("compacting records", "reading records", "writing the report", "writing the trace")
_REPORT_FILES = ("report.html", "report.json")
_MAX_PAGES = 64  # trainings that get a page of their own unasked


class ReportCommand:
    """Show the report of a run, or write it as HTML, JSON, text or a Perfetto trace.

    Works for finished, killed and live runs; without RUN, it is the newest below runs/. Without -o,
    --html and --format, report.html, report.json and trace.json.gz are written into the run folder.
    A file that ends in .speedscope.json or .collapsed gets the sampled stacks of all processes.

    If RUN holds several trainings, an overview is shown. Each training has its own report: those of
    separate processes in RUN/training-N (training-0: the script itself), consecutive ones of one
    process in RUN/parts/N. A file written with -o contains the overview and all reports.

    With --by-rank, the ranks of a large run are read in parallel and compared: which rank the
    others wait for, and how long. Several folders (one per node) and addresses that fsspec can open
    (s3://...) are accepted; missing, restarted or killed ranks are named.

    Examples:
        feedline report
        feedline report runs/train-1121-0943 -o report.html    # or .json, .txt, .trace.json.gz
        feedline report --by-rank /nodes/0/run /nodes/1/run
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run",
            nargs="*",
            type=_run_or_address,
            metavar="RUN",
            help=f"{HELP} (default: the newest there); several only with --by-rank",
        )
        shown = parser.add_argument_group("what to show")
        shown.add_argument(
            "--full", action="store_true", help="print the whole report instead of its first screen"
        )
        shown.add_argument(
            "--format",
            choices=_FORMATS,
            help="print the report in this format, and write no file",
        )
        shown.add_argument(
            "--html", action="store_true", help="only write RUN/report.html, and print its path"
        )
        shown.add_argument(
            "--training",
            type=int,
            metavar="N",
            help="show only the Nth of the training runs that ran in one process",
        )
        shown.add_argument(
            "--ceilings",
            type=Path,
            metavar="FILE",
            action="append",
            help="measured limits of this machine for the roofline, from `feedline probe` or "
            "`feedline compare`; may be repeated (default: "
            "ceilings.json in the run folder)",
        )
        shown.add_argument(
            "--link-bandwidth",
            type=bandwidth,
            metavar="RATE",
            help="nominal bandwidth of a rank's network link in one direction, with its unit: "
            "25GB/s or 200Gbit/s",
        )
        shown.add_argument(
            "--nccl-log",
            type=Path,
            metavar="FILE",
            help="output of the training with NCCL_DEBUG=INFO: adds what NCCL chose",
        )
        ranks = parser.add_argument_group("comparing ranks")
        ranks.add_argument(
            "--by-rank", action="store_true", help="compare the ranks of one run instead"
        )
        add_rank_pool(ranks)
        add_output(
            parser, "write only this file; the extension selects the format", json="the report"
        )
        parser.add_argument(
            "--finish", action="store_true", help=argparse.SUPPRESS
        )  # compact the records of ranks that ended
        parser.add_argument(
            "--wait", type=float, default=0.0, help=argparse.SUPPRESS
        )  # seconds to wait for other ranks to end

    def run(self, args: argparse.Namespace) -> int:
        if not args.run:
            args.run = [_newest(args)]
        if args.by_rank:
            return _compare_ranks(args)
        _refuse_misplaced(args, _BY_RANK_ONLY, "needs --by-rank")
        if len(args.run) > 1:
            raise ScriptError(
                "several run folders can only be compared by rank: add --by-rank, or give one run "
                "folder"
            )
        args.names = _names_of(args)
        check_files(args)

        from feedline.analysis import report as reports
        from feedline.analysis.explain.pipeline import place
        from feedline.analysis.report import overview
        from feedline.analysis.report.console import Console
        from feedline.analysis.report.progress import building
        from feedline.profiler.store.trainings import PARTS_FOLDER, open_run, trainings, worker_pids

        console = console_for(args)
        path, number = place(Path(args.run[0]), args.training)
        with (
            own_folders.held(path),
            building(Console(stderr=True, quiet=args.quiet), _STEPS) as done,
        ):
            if args.finish:
                _finish(path, args.wait)
            done()
            recorded = trainings(path)
            if len(recorded) > 1 and (
                number is not None or args.output is not None and _is_of_records(args.output)
            ):
                open_run(path)  # raises: which of them?
            notes = unreported_processes(
                path, {training.name for training in recorded}, worker_pids(recorded)
            )
            processes = [
                _report_process(args, path, number, training, len(recorded) > 1, notes, done)
                for training in recorded
            ]
            rows = [row for process in processes for row in process.rows]
            outside = processes[0].outside if len(processes) == 1 else None
            summary = overview.Overview(path.name, [], rows, outside, [*processes[0].notes, *notes])
            written = [file for process in processes for file in process.written]
            built = [report for process in processes for report in process.reports]
            if len(processes) > 1:
                written += _write_overview(path, summary, built, args)
            if (
                args.json is not None
                # the last of all: with it the command is done, and Ctrl-C before leaves no file in its
                # way
            ):
                save(
                    args.json,
                    overview.render_json(summary, built)
                    if len(rows) > 1
                    else reports.text(built[0], Path("report.json")),
                )
                written.append(args.json)
        if args.format is not None:
            from feedline.cli.report.formats import show

            show(built, summary, args.format, args.full, console, path)
            return 0
        if args.html:
            return _print_page(written)
        if args.output is None and not args.quiet:
            if len(rows) > 1:
                overview.show(summary, console)
            else:
                reports.to_terminal(
                    built[0],
                    console,
                    args.full,
                    written,
                    path if number is None else path / PARTS_FOLDER / str(number),
                )
                return 0
        name_files(console, written)
        return 0


def _compare_ranks(args: argparse.Namespace) -> int:
    """Compare the ranks of one run: the mode ``--by-rank``."""
    _refuse_misplaced(args, _REPORT_ONLY, "cannot be combined with --by-rank")
    if args.output is not None:
        raise ScriptError(
            "--by-rank prints a table: write it as JSON with --json FILE, and leave out -o"
        )
    check_json(args)
    refuse_twice(args.run, "run folder")

    from feedline.analysis.ranks.many.reduce import reduce_ranks
    from feedline.analysis.report.json_report import plain
    from feedline.cli.report.by_rank import show

    with rank_pool(args) as pool, progress_bar(args.quiet, "finding ranks") as tell:
        many = reduce_ranks(args.run, pool, tell=tell)
    show(many, console_for(args))
    if args.json is not None:
        save_json(args.json, plain(many))
    return 0


def _run_or_address(text: str) -> str:
    """Parse a run folder, or an address that fsspec can open."""
    return text if "://" in text else str(run_path(text))


def _newest(args: argparse.Namespace) -> str:
    """Return the newest run, and say which it is.

    Raises:
        RunNotFound: there is none. ScriptError: a run folder was taken for the file of ``--json``.
    """
    if args.json is not None and names_run(str(args.json)):
        raise ScriptError(
            f"{args.json} is a run, and --json needs a file: feedline report {args.json} --json "
            f"FILE, or --json - to print it"
        )
    newest = str(newest_run())
    if not args.quiet:
        say(f"{newest} is the newest run")
    return newest


def _names_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the files to write into the run folder.

    Raises:
        ScriptError: two places for the report were given.
    """
    given = [
        name
        for name, there in (
            ("-o", args.output is not None),
            ("--format", args.format is not None),
            ("--html", args.html),
            ("--json -", args.json == STDOUT),
        )
        if there
    ]
    if len(given) > 1:
        raise ScriptError(f"{given[0]} and {given[1]} cannot be combined: choose one of them")
    if args.format is not None:
        return ()
    return _REPORT_FILES[:1] if args.html else _REPORT_FILES


def _print_page(written: list[Path]) -> int:
    """Print where the page is: the last one written, which links all others."""
    if not written:
        return OutputError.exit_code
    save(STDOUT, printable(os.path.relpath(written[-1])))
    return 0


def _refuse_misplaced(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Check that no option was given that the mode ignores. Raises ScriptError."""
    for name in names:
        if getattr(args, name):
            raise ScriptError(f"--{name.replace('_', '-')} {why}")


def show_run(run: Path, *options: str) -> None:
    """Run the command with these options. Raises FeedlineError."""
    command, parser = ReportCommand(), Parser(prog="feedline report")
    command.prepare_parser(parser)
    command.run(parser.parse_args([*options, "--", str(run)]))


def _finish(path: Path, wait_s: float) -> None:
    """Wait for the ranks of one launch to end, and compact their records.

    Records that cannot be compacted stay unchanged.
    """
    from feedline.profiler.store.compact import compact
    from feedline.profiler.store.layout import SEGMENTS
    from feedline.profiler.store.run_folder import Run, rank_folders
    from feedline.profiler.store.trainings import inner_trainings

    deadline = time.monotonic() + wait_s
    while True:
        runs = [
            Run.of_folder(folder)
            for folder in [path, *inner_trainings(path)]
            if rank_folders(folder)
        ]
        if time.monotonic() > deadline or all(map(_ended, runs)):
            break
        time.sleep(0.2)
    for rank in (rank for run in runs for rank in run.ranks.values()):
        if rank.manifest.ended and (rank.folder / SEGMENTS).exists():
            try:
                compact(rank.folder)
            except (OSError, FeedlineError) as error:
                why = (
                    os.strerror(error.errno)
                    if isinstance(error, OSError) and error.errno
                    else error
                )
                say(
                    f"cannot compact {rank.folder} ({why}): no data is lost, but reading takes "
                    f"longer"
                )


def _ended(run: "Run") -> bool:
    """Return whether all ranks of a launch are present and have ended."""
    ranks = run.ranks.values()
    world = max(int(str(rank.manifest.place.get("world_size", 1))) for rank in ranks)
    return len(ranks) >= world and all(rank.manifest.state != "live" for rank in ranks)


@dataclass(frozen=True)
class _ProcessReports:
    """What was reported of the trainings of one process.

    Attributes:
        rows: for the overview.
        reports: of each.
        written: the files to name.
        outside: the time in none of them, where they are several.
        notes: on the overview.
    """

    rows: "list[Row]"
    reports: "list[Report]"
    written: list[Path]
    outside: "Outside | None" = None
    notes: list[str] = field(default_factory=list)


def _report_process(
    args: argparse.Namespace,
    path: Path,
    number: int | None,
    training: "Training",
    several: bool,
    notes: list[str],
    done: Callable[[], None],
) -> "_ProcessReports":
    """Build the report of one process's training and write it.

    It goes into the run folder if it is the only one, else into its own. Of several trainings that
    the process ran one after another: a report for each, and an overview.
    """
    from feedline.analysis.explain import tried
    from feedline.analysis.explain.build_traces import holds_traces
    from feedline.analysis.explain.pipeline import ceilings_of, of_process, report_of
    from feedline.analysis.report import stacks, trace
    from feedline.analysis.traces.windows import read_windows as find_windows
    from feedline.profiler.store.trainings import TRAINING_PREFIX

    run, folder = training.run, training.folder if several else path
    traces = holds_traces(run)
    draws_trace = (
        args.output is None
        and args.names == _REPORT_FILES
        and number is None
        or args.output is not None
        and trace.is_trace(args.output)
    )
    windows = find_windows(run) if draws_trace and not traces else None
    ceilings, network = (
        ceilings_of(path, args.ceilings),
        _network_hints(args.link_bandwidth, args.nccl_log),
    )
    parts = of_process(run, number)
    name = training.name.removeprefix(TRAINING_PREFIX) if several else ""

    def build(part: "Run") -> "Report":
        report = report_of(part, ceilings, network)
        before, more = (
            ([], [])
            if several or len(parts) > 1
            else ([trial.says() for trial in tried.of_run(path)], notes)
        )
        return replace(
            report,
            notes=[*before, *report.notes, *(windows.notes if windows is not None else []), *more],
        )

    if len(parts) > 1:
        reported = _report_several(path, folder, run, parts, build, name, args)
    else:
        reported = _report_one(
            path, folder if number is None else parts[0].path, build(parts[0]), name, args
        )
    done()
    done()
    if windows is not None:
        reported.written.extend(_write_trace(folder, run, args, windows))
    if args.output is not None and stacks.is_stacks(args.output):
        stacks.write(run, args.output)
        reported.written.append(args.output)
    return reported


def _is_of_records(path: Path) -> bool:
    """Return whether a file is made of records instead of the report."""
    from feedline.analysis.report import stacks, trace

    return trace.is_trace(path) or stacks.is_stacks(path)


def _network_hints(link_bandwidth: float | None, nccl_log: Path | None) -> "NetworkHints":
    """Return facts about the network that are not in a run folder.

    Args:
        link_bandwidth: bytes/s.
        nccl_log: file.

    Raises:
        ScriptError: the log cannot be read.
    """
    from feedline.analysis.ranks.comparison import NetworkHints

    try:
        lines = nccl_log.read_text(errors="replace").splitlines() if nccl_log else []
    except OSError as error:
        advice = "give the output of a training run with NCCL_DEBUG=INFO"
        raise ScriptError(
            f"--nccl-log: cannot read {nccl_log} ({error.strerror}): {advice}"
        ) from error
    return NetworkHints(link_bandwidth, tuple(lines))


def _report_one(
    root: Path, folder: Path, report: "Report", name: str, args: argparse.Namespace
) -> _ProcessReports:
    """Write the report of a process's only training into a folder, or to the requested file.

    Args:
        root: the run folder.
        folder: where the report goes.
        report: of the training.
        name: the process, if the run has several: a requested file is then that of all.
        args: the command line.
    """
    from feedline.analysis.report.overview import row

    written = [] if name and args.output is not None else _write_report(folder, report, args)
    return _ProcessReports(
        [
            row(
                name,
                report,
                Path(os.path.relpath(folder / _REPORT_FILES[0], _linked_from(args, root))),
            )
        ],
        [report],
        written,
    )


def _report_several(
    root: Path,
    folder: Path,
    run: "Run",
    trainings: "list[Run]",
    build: "Callable[[Run], Report]",
    name: str,
    args: argparse.Namespace,
) -> _ProcessReports:
    """Build and write the reports of several trainings of a process, and their overview.

    Args:
        root: the run folder.
        folder: where the overview goes.
        run: of the process.
        trainings: its trainings.
        build: builds the report of one.
        name: as of ``_report_one``.
        args: the command line.
    """
    from feedline.analysis.report.overview import Overview, row

    reports: list[Report] = []
    numbers: list[str] = []
    notes: list[str] = []
    unwritten: str | None = None
    for number, training in enumerate(trainings, 1):
        reports.append(build(training))
        numbers.append(f"{name}.{number}" if name else str(number))
        if args.output is None and unwritten is None and number <= _MAX_PAGES:
            unwritten = _write_training(training.path, reports[-1], args.names)
    if unwritten is not None:
        say(unwritten)
    if len(trainings) > _MAX_PAGES:
        notes.append(
            f"Only the first {_MAX_PAGES} training runs have a page. To see the next: feedline "
            f"report {folder} --training {_MAX_PAGES + 1}"
        )

    def rows(base: Path) -> "list[Row]":
        places = [
            Path(os.path.relpath(training.path / _REPORT_FILES[0], base)) for training in trainings
        ]
        return [row(*columns) for columns in zip(numbers, reports, places, strict=True)]

    command, outside = run.ranks[min(run.ranks)].manifest.command, _outside(run, trainings)
    written: list[Path] = []
    if not name or args.output is None:
        written = _write_overview(
            folder,
            Overview(run.name, command, rows(_linked_from(args, folder)), outside, notes),
            reports,
            args,
        )
    return _ProcessReports(rows(_linked_from(args, root)), reports, written, outside, notes)


def _write_report(folder: Path, report: "Report", args: argparse.Namespace) -> list[Path]:
    """Write the requested files; a read-only run folder gets none."""
    from feedline.analysis import report as reports

    written: list[Path] = []
    if args.output is not None and not _is_of_records(args.output):
        reports.write(report, args.output)
        written.append(args.output)
    if args.output is None:
        written += _try_write_into_run(
            folder, ((name, reports.text(report, Path(name))) for name in args.names)
        )
    return written


def _write_training(folder: Path, report: "Report", names: Iterable[str]) -> str | None:
    """Write the report of one training into its folder; return the reason if that failed."""
    from feedline.analysis import report as reports

    try:
        for name in names:
            _write_into_run(folder, name, reports.text(report, Path(name)))
    except FeedlineError as error:
        return str(error)
    return None


def _write_overview(
    folder: Path, overview: "Overview", reports: "list[Report]", args: argparse.Namespace
) -> list[Path]:
    """Write the overview where the report of a single training would be.

    Args:
        folder: the run folder.
        overview: of its trainings.
        reports: of its trainings; a requested file holds them too.
        args: the command line.

    Raises:
        OutputError: a requested file cannot be written.
    """
    from feedline.analysis.report.overview import ENDINGS

    written: list[Path] = []
    if args.output is not None and not _is_of_records(args.output):
        render = ENDINGS.get(args.output.suffix.lower())
        if render is None:
            raise OutputError(
                f"{args.output}: an overview of several training runs can be written as "
                f"{', '.join(ENDINGS)}"
            )
        if len(reports) > _MAX_PAGES:
            overview = replace(
                overview,
                notes=[
                    *overview.notes,
                    f"Only the reports of the first {_MAX_PAGES} training runs are included.",
                ],
            )
        save(args.output, render(overview, reports[:_MAX_PAGES]))
        written.append(args.output)
    if args.output is None:
        written += _try_write_into_run(
            folder, ((name, ENDINGS[Path(name).suffix](overview)) for name in args.names)
        )
    return written


def _write_into_run(folder: Path, name: str, text: str) -> Path:
    """Write a file into a run folder, with its private mode.

    Raises:
        OutputError: the folder is read-only or full, or the file is not feedline's.
    """
    try:
        owned.ensure(folder)
        owned.write(folder, name, text)
    except OSError as error:
        raise OutputError.unwritable(folder / name, error) from error
    return folder / name


def _try_write_into_run(folder: Path, texts: Iterable[tuple[str, str]]) -> list[Path]:
    """Write files into a run folder.

    What cannot be written is reported, and the terminal still shows the report.
    """
    written = []
    for name, text in texts:
        try:
            written.append(_write_into_run(folder, name, text))
        except FeedlineError as error:
            say(error)
    return written


def _linked_from(args: argparse.Namespace, folder: Path) -> Path:
    """Return the folder of the overview."""
    return args.output.absolute().parent if args.output is not None else folder


def _outside(run: "Run", trainings: "list[Run]") -> "Outside | None":
    """Return the time outside all trainings, as seen by the lowest rank."""
    from feedline.analysis.report.overview import Outside

    number = min(run.ranks)
    ranks = [training.ranks[number] for training in trainings if number in training.ranks]
    spans = [(rank.slice.begin, rank.slice.end) for rank in ranks if rank.slice]
    rank = run.ranks[number]
    if not spans or not rank.manifest.anchors:
        return None
    anchors = [anchor["perf_counter_ns"] for anchor in rank.manifest.anchors]
    begin, until = anchors[0], anchors[-1] if rank.manifest.ended else spans[-1][1]
    return Outside(
        before_s=max(spans[0][0] - begin, 0) / 1e9,
        between_s=[max(after[0] - before[1], 0) / 1e9 for before, after in zip(spans, spans[1:])],
        after_s=max(until - spans[-1][1], 0) / 1e9,
        whole_s=max(until - begin, 0) / 1e9,
    )


def _write_trace(
    folder: Path, run: "Run", args: argparse.Namespace, windows: "Windows"
) -> list[Path]:
    """Write the trace for Perfetto, into the run folder or to a given file.

    With -o, which writes no report, its notes are printed.
    """
    from feedline.analysis.report import trace

    path = args.output or folder / _TRACE_FILE
    try:
        if args.output is not None:
            notes = trace.write(run, path, windows)
        else:
            with owned.replacing(folder, _TRACE_FILE) as file:
                notes = trace.write_into(run, file, True, windows)
        for note in (
            [] if args.quiet else notes if args.output is None else [*windows.notes, *notes]
        ):
            say(note)
    except (OSError, OutputError) as error:
        if args.output is not None:
            raise
        say(OutputError.unwritable(path, error) if isinstance(error, OSError) else error)
        return []
    return [path]
