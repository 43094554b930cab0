"""What ``feedline verify`` prints of its trials, and adds to their ledger."""

import datetime
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from feedline.analysis.convergence.trial import Branch, FixTrial
from feedline.analysis.explain import tried
from feedline.analysis.explain.speed_trial import CHANGED, UNCHANGED, SpeedTrial, more
from feedline.analysis.formatting import BLANK, number
from feedline.analysis.ledger.finding import PredictedRate
from feedline.analysis.report.console import Console
from feedline.cli.outputs import save
from feedline.profiler.files import results
from feedline.profiler.printable import printable_in
from feedline.profiler.record.privacy import mask_argv


def show_pairs(trial: SpeedTrial, console: Console) -> None:
    """Print a trial by pairs: the runs, predicted beside measured, and the verdict."""
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
        table.add_row(shown, number(statistics.fmean(known)) if known else BLANK, cells)
    console.print(table)
    console.print()
    for line in conclusion_lines(trial):
        console.print(line, markup=False)


def conclusion_lines(trial: SpeedTrial) -> list[str]:
    """Return predicted, measured and the verdict."""
    lines = [
        f"Predicted  {_rates(trial.predicted, trial.unit)}"
        if trial.predicted
        else f"Predicted  nothing: {trial.refused}"
    ]
    lines += [f"Measured   {_rates(trial.measured, trial.unit)}"] if trial.measured else []
    if trial.conditions_changed and trial.recorded and trial.measured:
        now, then = number(trial.measured.before), number(trial.recorded.rate)
        lines.append(
            f"Conditions have changed: the unchanged training runs at {now} {trial.unit}, "
            f"recorded were {then}; the prediction is for those"
        )
    if trial.residual is not None and trial.predicted and trial.gain:
        overlap = "overlap" if trial.inside else "do not overlap"
        measured, expected = (
            number(1 + trial.gain.mean),
            number(trial.predicted.after / trial.predicted.before),
        )
        lines.append(
            f"Speedup    {measured} times measured, {expected} times predicted; the intervals "
            f"{overlap}"
        )
    return [*lines, "", f"{trial.verdict.upper()}: {trial.why}"]


def _rates(rate: PredictedRate, unit: str) -> str:
    """Return ``251 -> 410 samples/s [380, 430], +63.3 %``."""
    shown = (
        f"{number(rate.before)} -> {number(rate.after)} {unit} [{number(rate.low)}, "
        f"{number(rate.high)}]"
    )
    return f"{shown}, {more(rate.after / rate.before - 1)}" if rate.before > 0 else shown


def show_seeds(trial: FixTrial, console: Console) -> None:
    """Print a trial by seed: arms, differences, and the verdict."""
    trial = printable_in(trial)
    better = "lower" if trial.lower_is_better else "higher"
    table = Table(
        box=None,
        pad_edge=False,
        title=f"{trial.metric} ({better} is better)",
        title_justify="left",
        title_style="bold",
    )
    for name in ("arm", "mean", "sd", "by seed", "samples", "updates", "s/update"):
        table.add_column(name, justify="left" if name in ("arm", "by seed") else "right")
    for arm in ("baseline", "control", "fix"):
        branches = [branch for branch in trial.branches if branch.arm == arm]
        if branches:
            table.add_row(
                {"control": f"control {trial.control}", "fix": trial.fix}.get(arm, "unchanged"),
                *_cells(branches),
            )
    console.print(table)
    console.print()
    console.print(f"{trial.verdict.upper()}: {trial.why}")


def _cells(branches: list[Branch]) -> list[str]:
    """Return the cells of an arm."""
    values = [branch.value for branch in branches if branch.value is not None]
    steps = [branch.step_s for branch in branches if branch.step_s is not None]
    return [
        f"{statistics.mean(values):.4g}" if values else BLANK,
        f"{statistics.stdev(values):.2g}" if len(values) > 1 else BLANK,
        " ".join(
            "failed" if branch.value is None else f"{branch.value:.4g}" for branch in branches
        ),
        f"{statistics.median(branch.samples for branch in branches):,.0f}",
        f"{statistics.median(branch.updates for branch in branches):,.0f}",
        f"{statistics.median(steps):.3g}" if steps else BLANK,
    ]


def show_earlier(trials: Sequence[tried.Trial], console: Console) -> None:
    """Print earlier trials, and how well they were predicted."""
    table = Table(box=None, pad_edge=False)
    for name in ("tried", "change", "predicted", "measured", "verdict"):
        table.add_column(name, justify="right" if name in ("predicted", "measured") else "left")
    for trial in trials:
        gains = _without_interval(trial.predicted), _without_interval(trial.measured)
        table.add_row(trial.at[:10], trial.change, *gains, trial.verdict)
    console.print(table)
    known = [(trial.residual, trial.inside) for trial in trials if trial.residual is not None]
    if known:
        error = statistics.median(abs(1 - residual) for residual, _ in known)
        inside = sum(bool(inside) for _, inside in known)
        console.print()
        console.print(
            f"Predictions: median error {100 * error:.1f} %; {inside} of {len(known)} gains "
            f"overlap the predicted interval.",
            soft_wrap=True,
        )


def _without_interval(gain: str) -> str:
    """Return a gain without its interval."""
    return gain.partition(" [")[0] or BLANK


def write_trial(
    entry: Mapping[str, object],
    folder: Path,
    json_file: Path | None,
    program: list[str],
    **more: object,
) -> None:
    """Add a trial to the ledger, and write it as JSON.

    Args:
        entry: the trial.
        folder: of the ledger.
        json_file: file for the JSON, if any.
        program: command line of the training.
        **more: only for the JSON.

    Raises:
        OutputError: no room.
    """
    entry = {"command": mask_argv(program), **entry}
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results.add_line(folder, tried.LEDGER, json.dumps({"at": at, **entry}))
    if json_file is not None:
        save(json_file, json.dumps({**entry, **more}, indent=1) + "\n")
