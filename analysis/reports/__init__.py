"""Every way to show a run: terminal, text, HTML, JSON. All are drawn from one ``Report``.

Adding one: a module with ``render(report) -> str``, and a line in ``ENDINGS``.
"""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.analysis.model import Report
from feedline.profiler.errors import OutputError

if TYPE_CHECKING:  # rich is loaded when something is printed
    from rich.console import Console

#: File ending -> module of this package whose ``render(report) -> str`` makes the file's text.
ENDINGS = {".html": "html_report", ".json": "json_report", ".txt": "terminal"}


def write(report: Report, path: Path) -> None:
    """Write a report; the file's ending chooses the format. A file that is there already is replaced, and kept if writing fails.

    Raises:
        OutputError: an ending that no format has, or a place that cannot be written to.
    """
    path = Path(path)
    module = ENDINGS.get(path.suffix.lower())
    if module is None:
        known = f"{', '.join(ENDINGS)}, or .trace.json.gz for a trace"
        raise OutputError(f"{path}: no report format ends in {path.suffix or 'nothing'}: use one of {known}")
    text = importlib.import_module(f"{__name__}.{module}").render(report)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            new.write_bytes(text.encode("utf-8", "backslashreplace"))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the report cannot be written ({error.strerror}): name another file with -o") from error


def to_terminal(report: Report, console: "Console") -> None:
    """Print a report."""
    from feedline.analysis.reports.terminal import show

    show(report, console)
