"""A comparison of runs as a document and as a page: the conclusion, then what it is made of."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from feedline.analysis.diff import side as code_shares
from feedline.analysis.diff.conclusion import describe_difference, machine_reasons
from feedline.analysis.diff.context import STAYED, UNJUDGED
from feedline.analysis.diff.run_diff import FindingChange, Outcome, Quantity, RunDiff, RunName
from feedline.analysis.diff.side import OF_CODE, OF_STEP
from feedline.analysis.report import page, phrases
from feedline.analysis.report.document import (
    Document,
    Headline,
    Items,
    Note,
    Table,
)
from feedline.analysis.text.formatting import BLANK, counted, value
from feedline.profiler.printable import printable_in

_GROUP_TITLES = {
    "step": "Time",
    "stage": "Stages",
    "cpu": "Main thread CPU",
    "sample": "CPU",
    "blocked": "Blocked",
    code_shares.CODE_OF_SAMPLE: "Functions",
    code_shares.CODE_OF_STEP: "Functions of the loop",
    "wait": "Waits",
    "collective": "Collectives",
    "work": "Work",
    "gauge": "Gauges",
}
_OUTCOMES = {
    Outcome.CHANGED: "changed",
    Outcome.MACHINE: "machine",
    Outcome.EITHER: "unclear",
    "same": "",
    "unknown": "not tested",
    "one side": "one side only",
}
# in the terminal; the others where they changed
_SHOWN_GROUPS = ("step", "stage", "cpu", "sample", "blocked", "work", "collective")
_PER_SAMPLE = ("sample", "blocked", "work", code_shares.CODE_OF_SAMPLE)
_MAX_FUNCTIONS = 3  # in the terminal: those that changed most
_MAX_SETTINGS = 8  # settings in the terminal
# of the step or of a sample: smaller stages that did not change are not listed
_MIN_STAGE_SHARE = 0.01


def document_of(diff: RunDiff) -> Document:
    """Return the comparison: the conclusion, both sides of each quantity, and what else differs."""
    diff = printable_in(diff)
    lists = {
        "Machine": list(machine_reasons(diff.machine)),
        "Findings": _findings(diff.findings),
        "Differs": settings(diff),
        "Notes": diff.notes,
    }
    return Document(
        (
            Headline(*phrases.opening(diff.conclusion)),
            Note(f"A: {_runs(diff.before)}"),
            Note(f"B: {_runs(diff.after)}"),
            _table(diff, _listed_quantities(diff)),
            *(Items(tuple(rows), title) for title, rows in lists.items() if rows),
        )
    )


def _runs(side: Sequence[RunName]) -> str:
    """Return ``demo (36 steps)``."""
    return ", ".join(f"{run.name} ({counted(run.steps, 'step')})" for run in side)


def _listed_quantities(diff: RunDiff) -> list[Quantity]:
    """Return the quantities that the terminal shows."""
    step, sample = diff.of("step/mean"), diff.of("sample/total")
    totals = {"stage": step, "cpu": step, "collective": step, "sample": sample, "blocked": sample}

    functions = [
        quantity
        for quantity in diff.quantities
        if quantity.group in OF_CODE and quantity.outcome == Outcome.CHANGED
    ]

    def moved(function: Quantity) -> float:
        whole = step if function.group == code_shares.CODE_OF_STEP else sample
        of_s = whole.before if whole is not None else None
        return abs((function.after or 0.0) - (function.before or 0.0)) / (of_s or 1.0)

    most = sorted(functions, key=moved, reverse=True)[:_MAX_FUNCTIONS]

    def shows(quantity: Quantity) -> bool:
        if quantity.group in OF_CODE:
            return quantity in most
        total = totals.get(quantity.group)
        amount = max(quantity.before or 0.0, quantity.after or 0.0)
        large = total is None or amount >= _MIN_STAGE_SHARE * max(
            total.before or 0.0, total.after or 0.0
        )
        return quantity.outcome == Outcome.CHANGED or (quantity.group in _SHOWN_GROUPS and large)

    return [quantity for quantity in diff.quantities if shows(quantity)]


def _table(diff: RunDiff, quantities: Sequence[Quantity]) -> Table:
    """Return both sides of each quantity, the ratio with its interval, and the outcome."""
    rows: list[tuple[str, ...]] = []
    marked = set()
    for group, members in groupby(quantities, key=lambda quantity: quantity.group):
        rows.append((_title(group, diff),))
        for quantity in members:
            if quantity.outcome == Outcome.CHANGED:
                marked.add(len(rows))
            rows.append(tuple(_cells(quantity)))
    heads = ("", "A", "B", "B/A", "95 %", "")
    return Table(tuple(rows), heads, right=frozenset({1, 2, 3, 4}), marked=frozenset(marked))


def _title(group: str, diff: RunDiff) -> str:
    """Return the title of a group of rows, as in ``Stages per step``."""
    unit = diff.per if group in OF_STEP else "sample" if group in _PER_SAMPLE else ""
    return f"{_GROUP_TITLES[group]} per {unit}" if unit else _GROUP_TITLES[group]


def _cells(quantity: Quantity) -> list[str]:
    """Return a row: name, A, B, ratio, interval, outcome."""
    amounts = [
        BLANK if amount is None else value(amount, quantity.unit)
        for amount in (quantity.before, quantity.after)
    ]
    of_program = quantity.group in (code_shares.CODE_OF_STEP, code_shares.CODE_OF_SAMPLE)
    name = quantity.name if of_program else quantity.name.replace("_", " ")
    return [
        f"  {name}",
        *amounts,
        _ratio(quantity),
        _interval(quantity),
        _OUTCOMES[quantity.outcome],
    ]


def _ratio(quantity: Quantity) -> str:
    """Return B / A, as measured."""
    return (
        BLANK if quantity.ratio is None or quantity.measured is None else f"{quantity.measured:.2f}"
    )


def _interval(quantity: Quantity) -> str:
    """Return ``0.97 to 1.08``, the interval of the ratio."""
    low, high = quantity.measured_interval
    if low is None or high is None:
        return BLANK
    return f"{low:.2f} to {high:.2f}" if high < 100 else "too wide"


def _findings(changes: Sequence[FindingChange]) -> list[str]:
    """Return findings that came or went, and the others in one line."""
    lines = [
        f"{_change(finding)}: {finding.rule_id} "
        f"({finding.severity_before or finding.severity_after}): {finding.message}"
        for finding in changes
        if finding.change != STAYED
    ]
    stayed = [finding.rule_id for finding in changes if finding.change == STAYED]
    return [*lines, *([f"in both: {', '.join(stayed)}"] if stayed else [])]


def _change(finding: FindingChange) -> str:
    """Return what a finding did, or why that is unknown."""
    if finding.change != UNJUDGED:
        return finding.change
    return "in A; unknown in B" if finding.severity_before else "in B; unknown in A"


def settings(diff: RunDiff) -> list[str]:
    """Return settings, versions and hardware that differ."""
    return list(_settings(diff))


def _settings(diff: RunDiff) -> Iterator[str]:
    for setting in diff.settings[:_MAX_SETTINGS]:
        yield (
            f"{setting.kind}: {describe_difference(setting)}"
            if setting.kind != setting.name
            else f"{setting.kind}: {setting.before} -> {setting.after}"
        )
    if len(diff.settings) > _MAX_SETTINGS:
        yield f"and {len(diff.settings) - _MAX_SETTINGS} more; --json FILE has all"


def render(diff: RunDiff) -> str:
    """Render the comparison as a self-contained HTML file."""
    diff = printable_in(diff)
    groups = [
        (_title(group, diff), list(rows))
        for group, rows in groupby(diff.quantities, key=lambda quantity: quantity.group)
    ]
    return page.render(
        Path(__file__).with_name("diff.html"),
        it=diff,
        opening=phrases.opening(diff.conclusion),
        groups=groups,
        cells=_cells,
        change=_change,
        runs=_runs,
        machine=list(machine_reasons(diff.machine)),
    )
