"""What ``feedline report --format`` prints: one report, or those of several trainings."""

from collections.abc import Sequence
from pathlib import Path

from feedline.analysis import report as reports
from feedline.analysis.explain.model import Report
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.report import document_markdown, document_text, overview, terminal
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Document, Title
from feedline.analysis.report.first_screen import first_screen

_TEXT, _MARKDOWN = "text", "markdown"
_BOTH = {"json": ".json", "html": ".html"}  # format -> ending of a file of it


def show(
    built: Sequence[Report],
    summary: overview.Overview,
    form: str,
    full: bool,
    console: Console,
    run: Path,
    source: SourceLines | None = None,
) -> None:
    """Print reports in one format, which may be piped: to a file, a pull request, a browser.

    Args:
        built: the reports.
        summary: of them, if they are several.
        form: one of ``FORMATS``.
        full: all of the text.
        console: to print on.
        run: the run folder.
        source: reads lines of the program that HTML is to quote; None: it quotes none.
    """
    several = len(summary.rows) > 1
    if form == _TEXT:
        if several:
            document_text.show(overview.document_of(summary), console)
        else:
            terminal.show(built[0], console, full, (), run)
        return
    if form == _MARKDOWN:
        text = document_markdown.render(
            _document(built, summary) if several else first_screen(built[0])
        )
    elif several:
        text = overview.ENDINGS[_BOTH[form]](summary, built)
    else:
        text = reports.text(built[0], Path(f"report{_BOTH[form]}"), source)
    if not console.quiet:
        console.file.write(text)


def _document(built: Sequence[Report], summary: overview.Overview) -> Document:
    """Return the first screens of several trainings, one after another."""
    blocks = [block for report in built for block in first_screen(report).blocks]
    return Document((Title((summary.name, f"{len(built)} training runs")), *blocks))
