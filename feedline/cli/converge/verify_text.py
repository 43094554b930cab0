"""The result of a verification in the terminal."""

import statistics

from rich.table import Table

from feedline.analysis.convergence.trial import Branch, FixTrial
from feedline.analysis.formatting import BLANK
from feedline.analysis.report.console import Console
from feedline.profiler.printable import printable_in


def show(trial: FixTrial, console: Console) -> None:
    """Arms, differences, and the verdict."""
    trial = printable_in(trial)
    better = "lower" if trial.lower_is_better else "higher"
    table = Table(box=None, pad_edge=False, title=f"{trial.metric} ({better} is better)", title_justify="left", title_style="bold")
    for name in ("arm", "mean", "sd", "by seed", "samples", "updates", "s/update"):
        table.add_column(name, justify="left" if name in ("arm", "by seed") else "right")
    for arm in ("baseline", "control", "fix"):
        own = [branch for branch in trial.branches if branch.arm == arm]
        if own:
            table.add_row({"control": f"control {trial.control}", "fix": trial.fix}.get(arm, "unchanged"), *row(own))
    console.print(table)
    console.print()
    console.print(f"{trial.verdict.upper()}: {trial.why}")


def row(branches: list[Branch]) -> list[str]:
    """The cells of an arm."""
    values = [branch.value for branch in branches if branch.value is not None]
    steps = [branch.step_s for branch in branches if branch.step_s is not None]
    return [
        f"{statistics.mean(values):.4g}" if values else BLANK,
        f"{statistics.stdev(values):.2g}" if len(values) > 1 else BLANK,
        " ".join("failed" if branch.value is None else f"{branch.value:.4g}" for branch in branches),
        f"{statistics.median(branch.samples for branch in branches):,.0f}",
        f"{statistics.median(branch.updates for branch in branches):,.0f}",
        f"{statistics.median(steps):.3g}" if steps else BLANK,
    ]
