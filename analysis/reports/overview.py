"""Several trainings of one run, a line each."""

from collections.abc import Sequence

from rich.table import Table

from feedline.analysis.model import Report
from feedline.analysis.reports.console import Console
from feedline.analysis.reports.words import sentence
from feedline.profiler.printable import printable

NO_RATE = "-"


def table(trainings: Sequence[tuple[str, Report]]) -> Table:
    """Name, ranks, steps, samples per second and verdict of each."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, justify in (("training", "left"), ("ranks", "right"), ("steps", "right"), ("samples/s", "right"), ("", "left")):
        shown.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for name, report in trainings:
        pace = report.throughput
        rate = NO_RATE if pace.samples_per_s is None else f"{pace.samples_per_s:,.0f}"
        shown.add_row(*map(printable, (name, f"{report.run.ranks}", f"{pace.steps:,}", rate, sentence(report.verdict))))
    return shown


def to_terminal(trainings: Sequence[tuple[str, Report]], notes: Sequence[str], console: Console) -> None:
    """Print the overview."""
    console.print(f"{len(trainings)} trainings", style="bold")
    console.print()
    console.print(table(trainings))
    console.print()
    for note in notes:
        console.print(printable(note), soft_wrap=True)
