"""A search for loader settings as a self-contained HTML file: the figure of throughput by workers, and the best settings."""

from pathlib import Path

from feedline.analysis.formatting import BLANK
from feedline.analysis.predict.search import Tuning
from feedline.analysis.report import page
from feedline.analysis.report.figures.throughput import throughput_by_workers
from feedline.cli import tune_text
from feedline.profiler.printable import printable_in

_HERE = Path(__file__).parent


def render(found: Tuning) -> str:
    """The whole page, of a search that found a setting."""
    found = printable_in(found)
    assert found.search is not None
    return page.render(
        _HERE / "tune.html",
        it=found.search,
        line=found.line,
        advice=tune_text.conclusion(found.search),
        figure=throughput_by_workers(found.search),
        remarks=list(tune_text.why_not_more(found)),
        names=tune_text.NAMES,
        interval=tune_text.interval,
        blank=BLANK,
    )
