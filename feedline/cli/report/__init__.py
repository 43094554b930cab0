"""``feedline report``: of a run, or of what ``feedline attach -o`` wrote."""

import argparse
import io
import json
import os
import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
from feedline.cli.report.process_reports import (
    REPORT_FILES,
    is_of_records,
    report_process,
    write_overview,
)
from feedline.cli.runs import HELP, chosen_run, run_path
from feedline.profiler.errors import FeedlineError, OutputError, ScriptError
from feedline.profiler.files import own_folders
from feedline.profiler.printable import printable, say
from feedline.profiler.store.process_log import notes as unreported_processes

if TYPE_CHECKING:
    from feedline.analysis.explain.model import Report
    from feedline.analysis.measure.source_lines import SourceLines
    from feedline.analysis.report.console import Console
    from feedline.analysis.report.document import Document
    from feedline.analysis.report.overview import Overview
    from feedline.profiler.store.run_folder import Run


_RECORDED_ONLY = ("html", "with_source", "part", "ceilings", "link_bandwidth", "nccl_log")
_KNOWN = "what was seen from outside is shown as text, Markdown or JSON"
_BY_RANK_ONLY = ("dask", "processes")
_REPORT_ONLY = (
    *("full", "format", "html", "with_source", "part", "ceilings", "link_bandwidth"),
    "nccl_log",
)
_FORMATS = ("text", "markdown", "json", "html")
_STEPS = ("compacting records", "reading records", "writing the report", "writing the trace")


def _is_attached(folder: str) -> bool:
    """Return whether a folder has what ``feedline attach`` saw."""
    from feedline.analysis.report.of_attached import ATTACHED_FILE

    return (Path(folder) / ATTACHED_FILE).is_file()


def _report_attached(args: argparse.Namespace) -> int:
    """Show what was seen, as ``feedline attach`` did; lines of source are left out.

    Raises:
        ScriptError: an option needs a recording.
        RunDamaged, SchemaTooNew: it cannot be read.
        OutputError: a file cannot be written.
    """
    from feedline.analysis.report import document_markdown, document_text
    from feedline.analysis.report.json_report import plain
    from feedline.analysis.report.of_attached import document, read_attached

    for name in _RECORDED_ONLY:
        if getattr(args, name):
            raise ScriptError(f"--{name.replace('_', '-')} needs a recording: {_KNOWN}")
    if args.format == "html":
        raise ScriptError(f"--format html needs a recording: {_KNOWN}")
    check_files(args)
    seen = read_attached(Path(args.run[0]))
    shown, data, console = document(seen, lambda place: ""), plain(seen), console_for(args)
    files = [file for file in (args.output, args.json) if file is not None]
    if args.output is not None:
        save(args.output, _text(shown, data, args.output))
    elif args.format is None or args.format == "text":
        document_text.show(shown, console)
    elif not args.quiet:
        markdown = args.format == "markdown"
        console.file.write(document_markdown.render(shown) if markdown else _json_of_attached(data))
    if args.json is not None:
        save_json(args.json, data)
    name_files(console, files)
    return 0


def _text(shown: "Document", data: object, file: Path) -> str:
    """Return the text of a file, whose ending chooses the format. Raises OutputError."""
    from feedline.analysis.report import document_markdown, document_text
    from feedline.analysis.report.console import Console

    if file.suffix == ".json":
        return _json_of_attached(data)
    if file.suffix == ".md":
        return document_markdown.render(shown)
    if file.suffix == ".txt":
        text = io.StringIO()
        document_text.show(shown, Console(file=text, width=document_text.WIDTH, color_system=None))
        return text.getvalue()
    raise OutputError(f"{file}: {_KNOWN}: use .txt, .md or .json")


def _json_of_attached(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


class ReportCommand:
    """Show a run's report as text, Markdown, JSON, HTML or a Perfetto trace.

    Works for finished, killed and live runs. Prints the report, and writes report.html, report.json
    and trace.json.gz into the run folder. With -o or --html, only that file is written. With
    --format, none is. -o out.speedscope.json or -o out.collapsed writes the sampled stacks of all
    processes.

    If a command started several trainings, feedline shows an overview. For one of
    them, give:
      RUN/training-N  one per process (training-0: the script's own process)
      RUN/parts/N     several in one process, one after another (or RUN --part N)

    A file written with -o contains the overview and all reports.

    For a folder of `feedline attach -o`, reprints it without source.

    A plain report compares ranks, too. Use --by-rank for hundreds of ranks, one folder per node, or
    folders at an fsspec address (s3://...). It reads ranks in parallel, and shows which rank the
    others wait for, and how long. It names missing, restarted and killed ranks.

    Examples:
        feedline report
        feedline report runs/train-1121-0943 -o report.html    # or .md, .json, .txt, .trace.json.gz
        feedline report --by-rank /nodes/0/run /nodes/1/run
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run",
            nargs="*",
            type=_run_or_address,
            metavar="RUN",
            help=f"{HELP} (default: the newest in runs/). With --by-rank, one RUN per node",
        )
        _add_shown(parser.add_argument_group("what to show"))
        ranks = parser.add_argument_group("comparing ranks")
        ranks.add_argument("--by-rank", action="store_true", help="compare the ranks of one run")
        add_rank_pool(ranks)
        add_output(
            parser,
            "write only this file, in the format of its extension",
            json="the report",
            force="overwrite an existing -o or --json file (files in RUN are always replaced)",
        )
        # compact the records of ranks that ended
        parser.add_argument("--finish", action="store_true", help=argparse.SUPPRESS)
        # seconds to wait for other ranks to end
        parser.add_argument("--wait", type=float, default=0.0, help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        args.run = args.run or [str(chosen_run(args, "report"))]
        if args.by_rank:
            return _compare_ranks(args)
        _refuse_misplaced(args, _BY_RANK_ONLY, "needs --by-rank")
        if len(args.run) > 1:
            raise ScriptError(
                "several run folders can only be compared by rank: add --by-rank, or give one run "
                "folder"
            )
        if _is_attached(args.run[0]):
            return _report_attached(args)
        args.names = _names_of(args)
        _refuse_source(args)
        check_files(args)

        from feedline.analysis.explain.reports_of_run import place
        from feedline.analysis.report.console import Console, building

        console = console_for(args)
        path, number = place(Path(args.run[0]), args.part)
        with (
            own_folders.held(path),
            building(Console(stderr=True, quiet=args.quiet), _STEPS) as done,
        ):
            if args.finish:
                _finish(path, args.wait)
            done()
            built = _built(args, path, number, done)
        return _shown(args, built, console, path, number)


@dataclass(frozen=True)
class _Built:
    """All that was reported.

    Attributes:
        summary: Of all trainings.
        reports: Of each of them.
        written: The files to name.
        source: As of ProcessReports.
    """

    summary: "Overview"
    reports: "list[Report]"
    written: list[Path]
    source: "SourceLines | None" = None


def _add_shown(group: argparse._ActionsContainer) -> None:
    """Add the options for what is shown of a run."""
    group.add_argument(
        "--full", action="store_true", help="print the whole report instead of its first screen"
    )
    group.add_argument(
        "--format",
        choices=_FORMATS,
        help="print the report in this format, and write no file",
    )
    group.add_argument(
        "--html", action="store_true", help="only write RUN/report.html, and print its path"
    )
    group.add_argument(
        "--with-source",
        action="store_true",
        help="quote the slowest source lines (with -o FILE.html or --format html), except from files "
        "that have changed since the run",
    )
    group.add_argument(
        "--part",
        type=int,
        metavar="N",
        help="the Nth training of one process, as RUN/parts/N",
    )
    group.add_argument(
        "--ceilings",
        type=Path,
        metavar="FILE",
        action="append",
        help="speeds that `feedline probe -o FILE` or `compare` measured, to compare the run with. May be "
        "repeated (default: ceilings.json in the run folder)",
    )
    group.add_argument(
        "--link-bandwidth",
        type=bandwidth,
        metavar="RATE",
        help="nominal bandwidth of a rank's network link in one direction, such as 25GB/s or "
        "200Gbit/s, to compare collectives with",
    )
    group.add_argument(
        "--nccl-log",
        type=Path,
        metavar="FILE",
        help="output of a rank with NCCL_DEBUG=INFO, or its NCCL_DEBUG_FILE, to show which transport "
        "and algorithms NCCL chose",
    )


def _built(
    args: argparse.Namespace, path: Path, number: int | None, done: Callable[[], None]
) -> _Built:
    """Build the reports of all processes, and write the files that are asked for."""
    from feedline.analysis.report import overview
    from feedline.profiler.store.trainings import open_run, trainings, worker_pids

    recorded = trainings(path)
    several = len(recorded) > 1
    if several and (number is not None or args.output is not None and is_of_records(args.output)):
        open_run(path)  # raises: which of them?
    notes = unreported_processes(
        path, {training.name for training in recorded}, worker_pids(recorded)
    )
    processes = [
        report_process(args, path, number, training, several, notes, done) for training in recorded
    ]
    rows = [row for process in processes for row in process.rows]
    outside = None if several else processes[0].outside
    said = dict.fromkeys(note for process in processes for note in process.notes)
    summary = overview.Overview(path.name, [], rows, outside, [*said, *notes])
    reports = [report for process in processes for report in process.reports]
    written = [file for process in processes for file in process.written]
    if several:
        written += write_overview(path, summary, reports, args)
    if args.json is not None:
        # the last of all: with it the command is done, and Ctrl-C before leaves no file in its way
        save(args.json, _json(summary, reports))
        written.append(args.json)
    return _Built(summary, reports, written, processes[0].source)


def _json(summary: "Overview", built: "list[Report]") -> str:
    """Return the reports as JSON: of several trainings, with their overview."""
    from feedline.analysis import report as reports
    from feedline.analysis.report import overview

    if len(summary.rows) > 1:
        return overview.render_json(summary, built)
    return reports.text(built[0], Path("report.json"))


def _shown(
    args: argparse.Namespace, built: _Built, console: "Console", path: Path, number: int | None
) -> int:
    """Print what is asked for, and return the exit code."""
    from feedline.analysis.report import document_text, overview, terminal
    from feedline.profiler.store.trainings import PARTS_FOLDER

    if args.format is not None:
        form, source = args.format, built.source
        overview.show_as(built.reports, built.summary, form, args.full, console, path, source)
        return 0
    if args.html:
        return _print_page(built.written)
    if args.output is None and not args.quiet:
        if len(built.summary.rows) <= 1:
            folder = path if number is None else path / PARTS_FOLDER / str(number)
            terminal.show(built.reports[0], console, args.full, built.written, folder)
            return 0
        document_text.show(overview.document_of(built.summary), console)
    name_files(console, built.written)
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
    from feedline.analysis.report import document_text
    from feedline.analysis.report.json_report import plain
    from feedline.analysis.traces.folder import is_trace
    from feedline.cli.report.by_rank import document_of

    for run in args.run:
        if "://" not in run and any(map(is_trace, Path(run).glob("rank*"))):
            raise ScriptError(
                f"--by-rank reads recordings, and {run} was made of traces: "
                f"`feedline report {shlex.quote(run)}` compares their ranks"
            )
    with rank_pool(args) as pool, progress_bar(args.quiet, "finding ranks") as tell:
        many = reduce_ranks(args.run, pool, tell=tell)
    document_text.show(document_of(many), console_for(args))
    if args.json is not None:
        save_json(args.json, plain(many))
    return 0


def _run_or_address(text: str) -> str:
    """Parse a run folder, or an address that fsspec can open."""
    return text if "://" in text else str(run_path(text))


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
    return REPORT_FILES[:1] if args.html else REPORT_FILES


def _refuse_source(args: argparse.Namespace) -> None:
    """Check that lines of the program go only into a page outside of the run folder.

    Raises:
        ScriptError: they would go elsewhere.
    """
    if not args.with_source or args.format == "html":
        return
    page = args.output
    if page is None or page == STDOUT or page.suffix.lower() != ".html":
        raise ScriptError("--with-source needs -o FILE.html or --format html")
    if Path(args.run[0]).resolve() in page.resolve().parents:
        raise ScriptError("--with-source: a run folder keeps no source: choose a file outside it")


def _print_page(written: list[Path]) -> int:
    """Print where the page is: the last one written, which links all others."""
    pages = [file for file in written if file.suffix == ".html"]
    if not pages:
        return OutputError.exit_code
    save(STDOUT, printable(os.path.relpath(pages[-1])))
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
