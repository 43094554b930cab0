"""A comparison of runs as a self-contained HTML file."""

from itertools import groupby
from pathlib import Path

from feedline.analysis.diff.conclusion import machine_reasons
from feedline.analysis.diff.run_diff import RunDiff
from feedline.analysis.report import page, phrases
from feedline.cli import diff_text
from feedline.profiler.printable import printable_in

_HERE = Path(__file__).parent


def render(diff: RunDiff) -> str:
    """The whole page."""
    diff = printable_in(diff)
    groups = [(diff_text.title(group, diff), list(rows)) for group, rows in groupby(diff.quantities, key=lambda one: one.group)]
    return page.render(
        _HERE / "diff.html",
        it=diff,
        opening=phrases.opening(diff.conclusion),
        groups=groups,
        cells=diff_text.cells,
        change=diff_text.change,
        runs=diff_text.runs,
        machine=list(machine_reasons(diff.machine)),
    )
