"""A comparison of runs in the terminal: the conclusion, then what it is made of, 80 columns wide."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from feedline.analysis.diff.conclusion import differing, reasons
from feedline.analysis.diff.context import STAYED, UNJUDGED
from feedline.analysis.diff.model import CHANGED, EITHER, MACHINE, Diff, FindingChange, Quantity, RunName
from feedline.analysis.diff.side import OF_STEP
from feedline.analysis.formatting import BLANK, counted, value
from feedline.analysis.report import page, phrases
from feedline.analysis.report.console import Console
from feedline.analysis.report.tables import columns, item, plain
from feedline.profiler.printable import printable_in

_GROUPS = {
    "step": "Time",
    "stage": "Stages",
    "cpu": "CPU of main thread",
    "sample": "CPU",
    "blocked": "Blocked",
    "wait": "Waits",
    "collective": "Collectives",
    "work": "Work",
    "gauge": "Gauges",
}
_OUTCOMES = {CHANGED: "changed", MACHINE: "machine", EITHER: "unclear", "same": "", "unknown": "not tested", "one side": "one side only"}
_SHOWN = ("step", "stage", "cpu", "sample", "blocked", "work", "collective")  # in the terminal; the others where they changed
_STYLES = {CHANGED: "bold yellow", MACHINE: "cyan", EITHER: "cyan"}
_MOST = 8  # settings in the terminal
_LEAST = 0.01  # of the step or of a sample: smaller stages that did not change are not listed
_HERE = Path(__file__).parent


def show(diff: Diff, console: Console) -> None:
    """Print it."""
    diff = printable_in(diff)
    console.print(plain(diff.conclusion, "bold"))
    console.print()
    console.print(plain(f"A: {runs(diff.before)}", "dim"))
    console.print(plain(f"B: {runs(diff.after)}", "dim"))
    console.print()
    console.print(_table(diff, _listed(diff)))
    for title, lines in _sections(diff):
        console.print()
        console.print(Text(title, style="bold underline"))
        for line in lines:
            console.print(item("", line))
    console.print()


def _sections(diff: Diff) -> list[tuple[str, list[str]]]:
    """What comes below the table."""
    all_of = {"Machine": list(reasons(diff.machine)), "Findings": _findings(diff.findings), "Differs": settings(diff), "Notes": diff.notes}
    return [(title, lines) for title, lines in all_of.items() if lines]


def runs(side: Sequence[RunName]) -> str:
    """``demo (36 steps)``."""
    return ", ".join(f"{run.name} ({counted(run.steps, 'step')})" for run in side)


def _listed(diff: Diff) -> list[Quantity]:
    """Those that the terminal shows."""
    step, sample = diff.of("step/mean"), diff.of("sample/total")
    wholes = {"stage": step, "cpu": step, "collective": step, "sample": sample, "blocked": sample}

    def shows(quantity: Quantity) -> bool:
        whole = wholes.get(quantity.group)
        large = whole is None or max(quantity.before or 0.0, quantity.after or 0.0) >= _LEAST * max(whole.before or 0.0, whole.after or 0.0)
        return quantity.outcome == CHANGED or (quantity.group in _SHOWN and large)

    return [quantity for quantity in diff.quantities if shows(quantity)]


def _table(diff: Diff, quantities: Sequence[Quantity]) -> Table:
    """Both sides of each quantity, the ratio with its interval, and what it comes to."""
    made = columns("", "A", "B", "B/A", "95 %", "", gap=2)
    made.columns[-1].justify = "left"
    group = ""
    for quantity in quantities:
        if quantity.group != group:
            group = quantity.group
            made.add_row(Text(_title(group, diff), "dim"))
        made.add_row(*cells(quantity), style=_STYLES.get(quantity.outcome))
    return made


def _title(group: str, diff: Diff) -> str:
    """Of the rows of a group: what they are, and per step or sample: ``Stages per step``."""
    per = diff.per if group in OF_STEP else "sample" if group in ("sample", "blocked", "work") else ""
    return f"{_GROUPS[group]} per {per}" if per else _GROUPS[group]


def cells(quantity: Quantity) -> list[str]:
    """A row: name, A, B, ratio, interval, outcome."""
    amounts = [BLANK if one is None else value(one, quantity.unit) for one in (quantity.before, quantity.after)]
    return [f"  {quantity.name.replace('_', ' ')}", *amounts, ratio(quantity), interval(quantity), _OUTCOMES[quantity.outcome]]


def ratio(quantity: Quantity) -> str:
    """B / A, as measured."""
    return BLANK if quantity.ratio is None or quantity.measured is None else f"{quantity.measured:.2f}"


def interval(quantity: Quantity) -> str:
    """``0.97 - 1.08``, of the ratio."""
    low, high = quantity.measured_interval
    if low is None or high is None:
        return BLANK
    return f"{low:.2f}{BLANK}{high:.2f}" if high < 100 else "too wide"


def _findings(changes: Sequence[FindingChange]) -> list[str]:
    """Those that came or went; the others in one line."""
    lines = [
        f"{_change(one)}: {one.rule_id} ({one.severity_before or one.severity_after}): {one.message}"
        for one in changes
        if one.change != STAYED
    ]
    stayed = [one.rule_id for one in changes if one.change == STAYED]
    return [*lines, *([f"in both: {', '.join(stayed)}"] if stayed else [])]


def _change(finding: FindingChange) -> str:
    """What a finding did, or why that is unknown."""
    if finding.change != UNJUDGED:
        return finding.change
    return "in A; unknown in B" if finding.severity_before else "in B; unknown in A"


def settings(diff: Diff) -> list[str]:
    """Settings, versions and hardware that differ."""
    return list(_settings(diff))


def _settings(diff: Diff) -> Iterator[str]:
    for one in diff.settings[:_MOST]:
        yield f"{one.kind}: {differing(one)}" if one.kind != one.name else differing(one)
    if len(diff.settings) > _MOST:
        yield f"and {len(diff.settings) - _MOST} more; --json FILE has all"


def render(diff: Diff) -> str:
    """The whole page."""
    diff = printable_in(diff)
    groups = [(_title(group, diff), list(rows)) for group, rows in groupby(diff.quantities, key=lambda one: one.group)]
    return page.render(
        _HERE / "diff.html",
        it=diff,
        opening=phrases.opening(diff.conclusion),
        groups=groups,
        cells=cells,
        change=_change,
        runs=runs,
        machine=list(reasons(diff.machine)),
    )
