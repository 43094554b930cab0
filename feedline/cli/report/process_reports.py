"""The reports of a run's processes: built, and written into the run folder or elsewhere."""

import argparse
import os
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.outputs import save
from feedline.profiler import masks
from feedline.profiler.errors import DataError, FeedlineError, OutputError, ScriptError
from feedline.profiler.files import owned
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.analysis.explain.model import Report
    from feedline.analysis.measure.source_lines import SourceLines
    from feedline.analysis.ranks.comparison import NetworkHints
    from feedline.analysis.report.overview import Outside, Overview, Row
    from feedline.analysis.traces.windows import Windows
    from feedline.profiler.store.run_folder import Run
    from feedline.profiler.store.trainings import Training

REPORT_FILES = ("report.html", "report.json")
_TRACE_FILE = "trace.json.gz"
_MAX_PAGES = 64  # trainings that get a page of their own unasked


@dataclass(frozen=True)
class _ProcessReports:
    """What was reported of the trainings of one process.

    Attributes:
        rows: for the overview.
        reports: of each.
        written: the files to name.
        outside: the time in none of them, where they are several.
        notes: on the overview.
        source: reads lines of the program, if they are to be quoted.
    """

    rows: "list[Row]"
    reports: "list[Report]"
    written: list[Path]
    outside: "Outside | None" = None
    notes: list[str] = field(default_factory=list)
    source: "SourceLines | None" = None


def report_process(
    args: argparse.Namespace,
    path: Path,
    number: int | None,
    training: "Training",
    several: bool,
    notes: list[str],
    done: Callable[[], None],
) -> _ProcessReports:
    """Build the report of one process's training and write it.

    It goes into the run folder if it is the only one, else into its own. Of several trainings that
    the process ran one after another: a report for each, and an overview.
    """
    from feedline.analysis.explain import speed_trial
    from feedline.analysis.explain.reports_of_run import (
        ceilings_of,
        holds_traces,
        of_process,
        report_of,
    )
    from feedline.analysis.report import perfetto_trace, stack_files
    from feedline.analysis.traces.windows import read_windows
    from feedline.profiler.store.trainings import TRAINING_PREFIX

    run, folder = training.run, training.folder if several else path
    of_traces = holds_traces(run)
    if of_traces and args.output is not None and perfetto_trace.is_trace(args.output):
        raise OutputError(
            f"{args.output}: {path} was made of traces, so open those: no other can be drawn of it"
        )
    windows = read_windows(run) if _draws_trace(args, number) and not of_traces else None
    if missing := [file for file in args.ceilings or () if not file.exists()]:
        raise DataError(
            f"--ceilings: {missing[0]} not found: create it with `feedline probe -o "
            f"{shlex.quote(str(missing[0]))}`"
        )
    ceilings = ceilings_of(path, args.ceilings)
    network = _network_hints(args.link_bandwidth, args.nccl_log)
    parts = of_process(run, number)
    name = training.name.removeprefix(TRAINING_PREFIX) if several else ""

    def build(part: "Run") -> "Report":
        report = report_of(part, ceilings, network)
        said = [*report.notes, *(windows.notes if windows is not None else [])]
        if not several and len(parts) == 1:
            said = [*(trial.says() for trial in speed_trial.trials_of(path)), *said, *notes]
        return replace(report, notes=said)

    if args.with_source and (several or len(parts) > 1):
        way = f"name one, as in {path / training.name}" if several else "add --part N"
        raise ScriptError(f"--with-source quotes the program of one training: {way}")
    if len(parts) > 1:
        reported = _report_several(path, folder, run, parts, build, name, args)
    else:
        reported = _report_one(
            path, folder if number is None else parts[0].path, parts[0], build, name, args
        )
    done()
    done()
    if windows is not None:
        reported.written.extend(_write_trace(folder, run, args, windows))
    if args.output is not None and stack_files.is_stacks(args.output):
        stack_files.write(run if number is None else parts[0], args.output)
        reported.written.append(args.output)
    return reported


def _draws_trace(args: argparse.Namespace, number: int | None) -> bool:
    """Return whether a trace is written: into the run folder with its other files, or as asked."""
    from feedline.analysis.report import perfetto_trace

    if args.output is not None:
        return perfetto_trace.is_trace(args.output)
    return args.names == REPORT_FILES and number is None


def is_of_records(path: Path) -> bool:
    """Return whether a file is made of records instead of the report."""
    from feedline.analysis.report import perfetto_trace, stack_files

    return perfetto_trace.is_trace(path) or stack_files.is_stacks(path)


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
    root: Path,
    folder: Path,
    training: "Run",
    build: "Callable[[Run], Report]",
    name: str,
    args: argparse.Namespace,
) -> _ProcessReports:
    """Write the report of a process's only training into a folder, or to the requested file.

    Args:
        root: the run folder.
        folder: where the report goes.
        training: of the process.
        build: builds its report.
        name: the process, if the run has several: a requested file is then that of all.
        args: the command line.
    """
    from feedline.analysis.report.overview import row

    report = build(training)
    source = _source_of(training, report) if args.with_source else None
    whole = name and args.output is not None
    written = [] if whole else _write_report(folder, report, args, source)
    return _ProcessReports(
        [
            row(
                name,
                report,
                Path(os.path.relpath(folder / REPORT_FILES[0], _linked_from(args, root))),
            )
        ],
        [report],
        written,
        source=source,
    )


def _source_of(training: "Run", report: "Report") -> "SourceLines":
    """Return what reads lines of the program, as the rank ran it that the report shows."""
    from feedline.analysis.explain.run_facts import source_of

    shown = min(training.ranks) if report.shown is None else report.shown
    return source_of(training.ranks[shown])


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
            f"report {masks.place(folder)} --part {_MAX_PAGES + 1}"
        )

    def rows(base: Path) -> "list[Row]":
        places = [
            Path(os.path.relpath(training.path / REPORT_FILES[0], base))
            if number < _MAX_PAGES
            else None
            for number, training in enumerate(trainings)
        ]
        return [row(*columns) for columns in zip(numbers, reports, places, strict=True)]

    command, outside = run.ranks[min(run.ranks)].manifest.command, _outside(run, trainings)
    written: list[Path] = []
    if not name or args.output is None:
        written = write_overview(
            folder,
            Overview(run.name, command, rows(_linked_from(args, folder)), outside, notes),
            reports,
            args,
        )
    return _ProcessReports(rows(_linked_from(args, root)), reports, written, outside, notes)


def _write_report(
    folder: Path, report: "Report", args: argparse.Namespace, source: "SourceLines | None"
) -> list[Path]:
    """Write the requested files; a read-only run folder gets none, and none that quotes source."""
    from feedline.analysis import report as reports

    written: list[Path] = []
    if args.output is not None and not is_of_records(args.output):
        reports.write(report, args.output, source)
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


def write_overview(
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
    if args.output is not None and not is_of_records(args.output):
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
    """Return the folder that an overview gives the places of pages from.

    It is the overview's own, or the run folder where that lies elsewhere: the way there would name
    folders that are nobody's business.
    """
    if args.output is None:
        return folder
    base = Path(os.path.abspath(args.output.parent))
    return base if Path(os.path.abspath(folder)).is_relative_to(base) else folder


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
    from feedline.analysis.report import perfetto_trace

    path = args.output or folder / _TRACE_FILE
    try:
        if args.output is not None:
            notes = perfetto_trace.write(run, path, windows)
        else:
            with owned.replacing(folder, _TRACE_FILE) as file:
                notes = perfetto_trace.write_into(run, file, True, windows)
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
