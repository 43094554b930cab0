"""The result of a trial of speed in the terminal: the runs, predicted beside measured, the verdict, and the lines to change."""

from statistics import fmean

from rich.table import Table

from feedline.analysis.explain.speed_trial import CHANGED, UNCHANGED, SpeedTrial, more
from feedline.analysis.formatting import BLANK, number
from feedline.analysis.ledger.change import PredictedRate
from feedline.analysis.report.console import Console
from feedline.profiler.printable import printable_in


def show(trial: SpeedTrial, console: Console) -> None:
    """Print it."""
    trial = printable_in(trial)
    at = f" ({trial.made_at})" if trial.made_at else ""
    console.print(f"{trial.change}{at}", style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("arm", "mean", f"{trial.unit} by run"):
        table.add_column(name, justify="right" if name == "mean" else "left")
    for arm, shown in ((UNCHANGED, UNCHANGED), (CHANGED, trial.change)):
        rates = [run.rate for run in trial.runs if run.arm == arm]
        known = [rate for rate in rates if rate is not None]
        cells = " ".join("failed" if rate is None else number(rate) for rate in rates)
        table.add_row(shown, number(fmean(known)) if known else BLANK, cells)
    console.print(table)
    console.print()
    for line in lines(trial):
        console.print(line, markup=False)


def lines(trial: SpeedTrial) -> list[str]:
    """Predicted, measured and the verdict."""
    found = [f"Predicted  {_rates(trial.predicted, trial.unit)}" if trial.predicted else f"Predicted  nothing: {trial.refused}"]
    found += [f"Measured   {_rates(trial.measured, trial.unit)}"] if trial.measured else []
    if trial.conditions_changed and trial.recorded and trial.measured:
        now, then = number(trial.measured.before), number(trial.recorded.rate)
        found.append(
            f"Conditions have changed: the unchanged training runs at {now} {trial.unit}, recorded were {then}; the prediction is for those"
        )
    if trial.residual is not None and trial.predicted and trial.gain:
        within = "overlap" if trial.inside else "do not overlap"
        measured, expected = number(1 + trial.gain.mean), number(trial.predicted.after / trial.predicted.before)
        found.append(f"Speedup    {measured} times measured, {expected} times predicted; the intervals {within}")
    return [*found, "", f"{trial.verdict.upper()}: {trial.why}"]


def _rates(found: PredictedRate, unit: str) -> str:
    """``251 -> 410 samples/s [380, 430], +63.3 %``."""
    shown = f"{number(found.before)} -> {number(found.after)} {unit} [{number(found.low)}, {number(found.high)}]"
    return f"{shown}, {more(found.after / found.before - 1)}" if found.before > 0 else shown
