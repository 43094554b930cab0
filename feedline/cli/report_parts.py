"""Writes what ``feedline report`` has built: the report of a process's only training, or one for each of several, and an overview."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.output import into_run, into_run_if_possible, save
from feedline.profiler.errors import FeedlineError, OutputError
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.analysis.explain.model import Report
    from feedline.analysis.report.overview import Outside, Overview, Row
    from feedline.profiler.store.run_folder import Run

_FILES = ("report.html", "report.json")
_MOST = 64  # trainings that get a page of their own unasked


@dataclass(frozen=True)
class Told:
    """Results for the trainings of one process.

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


def one_training(root: Path, folder: Path, report: "Report", name: str, args: argparse.Namespace) -> Told:
    """Write the report of a process's only training into a folder, or to the requested file.

    Args:
        name: of the process, where the run has several: a file that was asked for is then that of all.
    """
    from feedline.analysis.report.overview import row

    written = [] if name and args.output is not None else _write_report(folder, report, args)
    return Told([row(name, report, Path(os.path.relpath(folder / _FILES[0], _linked_from(args, root))))], [report], written)


def _write_report(folder: Path, report: "Report", args: argparse.Namespace) -> list[Path]:
    """Write the files that were asked for; a run folder that is read-only gets none, and the terminal shows the report still."""
    from feedline.analysis import report as reports
    from feedline.analysis.report import trace

    written: list[Path] = []
    if args.output is not None and not trace.is_trace(args.output):
        reports.write(report, args.output)
        written.append(args.output)
    if args.output is None:
        written += into_run_if_possible(folder, ((name, reports.text(report, Path(name))) for name in _FILES))
    return written


def _linked_from(args: argparse.Namespace, folder: Path) -> Path:
    """The folder of the overview."""
    return args.output.absolute().parent if args.output is not None else folder


def several_trainings(
    root: Path, folder: Path, run: "Run", trainings: "list[Run]", build: "Callable[[Run], Report]", name: str, args: argparse.Namespace
) -> Told:
    """Build and write the reports of several trainings of a process, and their overview.

    Args:
        root: the run folder.
        folder: where the overview goes.
        name: as of ``one_training``.
    """
    from feedline.analysis.report.overview import Overview, row

    reports: list[Report] = []
    numbers: list[str] = []
    notes: list[str] = []
    unwritten: str | None = None
    for number, training in enumerate(trainings, 1):
        reports.append(build(training))
        numbers.append(f"{name}.{number}" if name else str(number))
        if args.output is None and unwritten is None and number <= _MOST:
            unwritten = write(training.path, reports[-1])
    if unwritten is not None:
        say(unwritten)
    if len(trainings) > _MOST:
        notes.append(f"Only the first {_MOST} training runs have a page. To see the next: feedline report {folder} --training {_MOST + 1}")

    def rows(base: Path) -> "list[Row]":
        places = [Path(os.path.relpath(training.path / _FILES[0], base)) for training in trainings]
        return [row(*one) for one in zip(numbers, reports, places, strict=True)]

    command, between = run.ranks[min(run.ranks)].manifest.command, outside(run, trainings)
    written: list[Path] = []
    if not name or args.output is None:
        written = write_overview(folder, Overview(run.name, command, rows(_linked_from(args, folder)), between, notes), reports, args)
    return Told(rows(_linked_from(args, root)), reports, written, between, notes)


def write(folder: Path, report: "Report") -> str | None:
    """Write the report of one training into its folder. Returns the reason if that failed."""
    from feedline.analysis import report as reports

    try:
        for name in _FILES:
            into_run(folder, name, reports.text(report, Path(name)))
    except FeedlineError as error:
        return str(error)
    return None


def write_overview(folder: Path, overview: "Overview", reports: "list[Report]", args: argparse.Namespace) -> list[Path]:
    """Write the overview where the report of a single training would be.

    Args:
        reports: of its trainings. A file that was asked for holds them too.

    Raises:
        OutputError: a file that was asked for cannot be written.
    """
    from feedline.analysis.report import trace
    from feedline.analysis.report.overview import ENDINGS

    written: list[Path] = []
    if args.output is not None and not trace.is_trace(args.output):
        render = ENDINGS.get(args.output.suffix.lower())
        if render is None:
            raise OutputError(f"{args.output}: an overview of several training runs can be written as {', '.join(ENDINGS)}")
        if len(reports) > _MOST:
            overview = replace(overview, notes=[*overview.notes, f"Only the reports of the first {_MOST} training runs are included."])
        save(args.output, render(overview, reports[:_MOST]))
        written.append(args.output)
    if args.output is None:
        written += into_run_if_possible(folder, ((name, ENDINGS[Path(name).suffix](overview)) for name in _FILES))
    return written


def outside(run: "Run", trainings: "list[Run]") -> "Outside | None":
    """The time outside all trainings, as seen by the lowest rank."""
    from feedline.analysis.report.overview import Outside

    number = min(run.ranks)
    rank = run.ranks[number]
    spans = [(own.slice.begin, own.slice.end) for training in trainings if (own := training.ranks.get(number)) is not None and own.slice]
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
