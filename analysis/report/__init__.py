"""Every way to show a run: terminal, text, Markdown, HTML, JSON. All are drawn from one ``Report``.

Adding one: a function ``(report) -> str`` in a module, and a line in ``_ENDINGS``.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.analysis.explain.model import Report
from feedline.profiler.errors import OutputError
from feedline.profiler.files import output

if TYPE_CHECKING:
    from feedline.analysis.measure.source_lines import SourceLines

#: File ending -> module of this package, and its function that makes the file's text of a report.
_ENDINGS = {
    ".html": ("html_report", "render"),
    ".json": ("json_report", "render"),
    ".txt": ("terminal", "render"),
    ".md": ("terminal", "render_markdown"),
}


def write(report: Report, path: Path, source: "SourceLines | None" = None) -> None:
    """Write a report into a file that the user named.

    An older one is replaced, and kept if writing fails.

    Args:
        source: as of ``text``.

    Raises:
        OutputError: an ending that no format has, or a place that cannot be written to.
    """
    output.save(path, text(report, path, source))


def text(report: Report, path: Path, source: "SourceLines | None" = None) -> str:
    """Return a report as the text of a file, whose ending chooses the format.

    Args:
        source: reads lines of the program that HTML is to quote; None: it quotes none.

    Raises:
        OutputError: an ending that no format has.
    """
    form = _ENDINGS.get(path.suffix.lower())
    if form is None:
        known = (
            f"{', '.join(_ENDINGS)}, .trace.json.gz for a trace, .speedscope.json or .collapsed "
            f"for stacks"
        )
        raise OutputError(
            f"{path}: unknown report format {path.suffix or 'without an extension'}: use one of "
            f"{known}"
        )
    quoted = () if source is None else (source,)
    module, function = form
    made: str = getattr(importlib.import_module(f"{__name__}.{module}"), function)(report, *quoted)
    return made
