"""The report on a terminal, at most 80 columns wide.

The default report is one screen (first_screen.py); all of it is in full_report.py. Both end with
the lines that say where the files are and what shows more.
"""

import io
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from feedline.analysis.explain.model import Report
from feedline.analysis.report import document_text, phrases
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Document, Title
from feedline.analysis.report.document_text import WIDTH
from feedline.analysis.report.first_screen import conclusion, first_screen, places
from feedline.analysis.report.full_report import details
from feedline.analysis.rules import is_applied_outside
from feedline.profiler.printable import printable_in

_NEXT_WITHOUT_STEPS = "feedline env  # what can be recorded on this machine, and what cannot"


def render(report: Report) -> str:
    """Return all of the report as plain text, 80 columns wide."""
    file = io.StringIO()
    show(
        report, Console(file=file, width=WIDTH, color_system=None, force_terminal=False), full=True
    )
    return file.getvalue()


def show(
    report: Report,
    console: Console,
    full: bool = False,
    files: Sequence[Path] = (),
    run: Path | None = None,
) -> None:
    """Print the report.

    Args:
        full: all of it, however long.
        files: those just written, for the line that says where the report is.
        run: its folder, for who may know where it is; None: as the report has it, perhaps masked.
    """
    report = printable_in(report)
    said = _full_report(report) if full else first_screen(report)
    end = places(list(_places(report, files, full, run)))
    document_text.show(Document((*said.blocks, end)), console)


def _full_report(report: Report) -> Document:
    about = Title(tuple(phrases.about(report.run)))
    return Document((about, *conclusion(report), *details(report)))


def _places(
    report: Report, files: Sequence[Path], full: bool, folder: Path | None
) -> Iterable[tuple[str, str]]:
    """Yield where the report is, and the commands that show more and prove it."""
    files = sorted(files, key=lambda file: file.suffix.lower() != ".html")
    run = (
        phrases.run_place(report.run)
        if folder is None
        else shlex.quote(min(os.path.relpath(folder), str(folder), key=len))
    )
    if files:
        yield "Report", os.path.relpath(files[0])
    if report.step is None:
        if not report.headline and not report.findings:
            # else those come first: a crash, Ctrl-C, a full disk, an empty loader
            yield "Next", _NEXT_WITHOUT_STEPS
        return
    if not full:
        yield "More", f"feedline report {run} --full"
    elif not any(file.suffix.lower() == ".html" for file in files):
        yield "HTML", f"feedline report {run} --html"
    if _can_be_tried(report):
        yield "Test", f"feedline verify {run}"


def _can_be_tried(report: Report) -> bool:
    """Whether ``feedline verify`` can make the change of the verdict, and its gain is predicted."""
    top = next((one for one in report.findings if one.rule_id == report.verdict.finding), None)
    return top is not None and top.predicted is not None and is_applied_outside(top)
