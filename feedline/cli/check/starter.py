"""A budget to start from: limits that a run holds, with room for its noise, to be edited."""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from feedline.analysis.diff.budget import (
    Budget,
    Figure,
    LimitOutcome,
    check_budget,
    figures_of,
    why_lost,
    why_unjudged,
)
from feedline.analysis.diff.side import ComparedRun
from feedline.analysis.ledger.finding import Severity
from feedline.profiler.errors import NotJudged

_LESS, _MORE = 0.9, 1.2  # of what was measured: what a limit leaves for another run
_SHARE_ROOM, _MOST_SHARE = 0.1, 0.95
_COSTS = ("step_cpu_s", "sample_cpu_s.total")


def starter_budget(run: ComparedRun, path: Path) -> str:
    """Return the text of a budget file that the run passes.

    Args:
        run: what the limits are from.
        path: its folder.

    Raises:
        NotJudged: the run is too short, or did not end.
    """
    if why := why_unjudged(Budget(), run) or why_lost(run):
        raise NotJudged(f"no budget can be made from {path}: {why}")
    figures = dict(figures_of(run))
    shown = os.path.relpath(path)
    lines = [
        f"# Limits that {shown} holds, with room for noise. Edit them, and then:",
        "#   feedline check RUN --budget budget.toml",
        "# docs/jobs/ci.md lists all keys.",
        "",
        "[at_least]",
        *_at_least(figures),
        "",
        "[at_most]",
        *_at_most(figures),
    ]
    (severe,) = check_budget(Budget(severity=Severity.HIGH.value), run, [], {})
    if severe.outcome == LimitOutcome.PASSED:
        lines += ["", "[findings]", 'none_of_severity = "high"']
    return "\n".join(lines) + "\n"


def _at_least(figures: dict[str, Figure]) -> Iterator[str]:
    name = "samples_per_s" if "samples_per_s" in figures else "steps_per_s"
    if (rate := figures.get(name)) is not None:
        limit = _rounded(min(_LESS * rate.value, rate.low or rate.value), math.floor)
        yield _line(name, limit, rate)


def _at_most(figures: dict[str, Figure]) -> Iterator[str]:
    if (waits := figures.get("input_share")) is not None:
        highest = max(waits.value + _SHARE_ROOM, waits.high or 0.0)
        yield _line("input_share", math.ceil(100 * min(highest, _MOST_SHARE)) / 100, waits)
    for name in _COSTS:
        if (cost := figures.get(name)) is not None and cost.value > 0:
            highest = max(_MORE * cost.value, cost.high or 0.0)
            yield _line(name, _rounded(highest, math.ceil), cost)


def _line(name: str, limit: float, figure: Figure) -> str:
    return f"{f'{name} = {limit:g}':32}  # measured: {figure.text(figure.value)}"


def _rounded(x: float, how: Callable[[float], int]) -> float:
    """Round to two significant digits, down or up."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{how(x / unit) * unit:.6g}")
