"""The list of what ``feedline verify`` tried before."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from feedline.analysis.formatting import BLANK

if TYPE_CHECKING:
    from feedline.analysis.explain.tried import Trial
    from feedline.analysis.report.console import Console


def _first(gain: str) -> str:
    """The gain without its interval."""
    return gain.partition(" [")[0] or BLANK


def show(found: Sequence["Trial"], console: "Console") -> None:
    """Print all trials, and how well they were predicted."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("tried", "change", "predicted", "measured", "verdict"):
        table.add_column(name, justify="right" if name in ("predicted", "measured") else "left")
    for one in found:
        table.add_row(one.at[:10], one.change, _first(one.predicted), _first(one.measured), one.verdict)
    console.print(table)
    known = [(one.residual, one.inside) for one in found if one.residual is not None]
    if known:
        error = median(abs(1 - residual) for residual, _ in known)
        inside = sum(bool(inside) for _, inside in known)
        console.print()
        console.print(
            f"Predictions: median error {100 * error:.1f} %; {inside} of {len(known)} gains overlap the predicted interval.",
            soft_wrap=True,
        )
