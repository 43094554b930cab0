"""What ``feedline verify`` prints of its trials, and adds to their ledger."""

import datetime
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from feedline.analysis.convergence.trial import Branch, FixTrial
from feedline.analysis.explain import speed_trial
from feedline.analysis.explain.speed_trial import CHANGED, UNCHANGED, SpeedTrial
from feedline.analysis.ledger.finding import PredictedRate
from feedline.analysis.report.document import (
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.analysis.text.formatting import BLANK, number, rate
from feedline.cli.outputs import save
from feedline.profiler.files import results
from feedline.profiler.printable import printable_in
from feedline.profiler.record.privacy import mask_argv


def document_of(trial: SpeedTrial) -> Document:
    """Return a trial by pairs: the verdict, predicted beside measured, and the runs."""
    trial = printable_in(trial)
    blocks: list[Block] = [
        Title((trial.change, *([trial.made_at] if trial.made_at else []))),
        Headline(f"{trial.verdict.upper()}: {trial.why}."),
        Fields(tuple(_predicted_and_measured(trial)), indented=True),
    ]
    blocks += [Note(said) for said in (_conditions(trial), _agreement(trial)) if said]
    return Document((*blocks, _runs(trial)))


def _predicted_and_measured(trial: SpeedTrial) -> Iterator[Field]:
    yield Field(
        "Predicted",
        _rates(trial.predicted, trial.unit) if trial.predicted else f"nothing: {trial.refused}",
    )
    if trial.measured:
        yield Field("Measured", _rates(trial.measured, trial.unit))


def _rates(rates: PredictedRate, unit: str) -> str:
    """Return ``251 -> 410 samples/s (380 to 430)``."""
    return f"{rate(rates.before)} -> {rate(rates.after)} {unit} ({rate(rates.low)} to {rate(rates.high)})"


def _conditions(trial: SpeedTrial) -> str:
    """Say that the unchanged training runs at another speed than recorded; "" if it does not."""
    if not (trial.conditions_changed and trial.recorded and trial.measured):
        return ""
    return (
        f"The unchanged training now runs at {rate(trial.measured.before)} {trial.unit}, not at the "
        f"{rate(trial.recorded.rate)} recorded, so the prediction does not apply."
    )


def _agreement(trial: SpeedTrial) -> str:
    """Say whether the prediction was right; "" if it cannot be compared.

    It holds only if it has what was measured, not where an interval is wide enough to reach it.
    """
    if trial.residual is None or not trial.predicted or not trial.gain:
        return ""
    expects = trial.predicted
    holds = expects.low <= (1 + trial.gain.mean) * expects.before <= expects.high
    measured = number(1 + trial.gain.mean)
    expected = number(trial.predicted.after / trial.predicted.before)
    judged = "too low" if trial.residual > 1 else "too high"
    was = f"The prediction was {judged}"
    if trial.inside:
        was = "The prediction holds" if holds else "Whether the prediction holds is unknown"
    return f"{was}: {measured} times the throughput was measured, {expected} times predicted."


def _runs(trial: SpeedTrial) -> Table:
    """Return a row for each arm: the mean, then each run."""
    rows = []
    for arm, shown in ((UNCHANGED, UNCHANGED), (CHANGED, trial.change)):
        rates = [run.rate for run in trial.runs if run.arm == arm]
        known = [one for one in rates if one is not None]
        cells = ", ".join("failed" if one is None else rate(one) for one in rates)
        rows.append((shown, rate(statistics.fmean(known)) if known else BLANK, cells))
    return Table(tuple(rows), ("training", "mean", f"{trial.unit} by run"), right=frozenset({1}))


def document_of_seeds(trial: FixTrial) -> Document:
    """Return a trial by seed: the verdict, then the arms."""
    trial = printable_in(trial)
    better = "lower" if trial.lower_is_better else "higher"
    rows: list[tuple[str, ...]] = []
    for arm in ("baseline", "control", "fix"):
        branches = [branch for branch in trial.branches if branch.arm == arm]
        if branches:
            name = {"control": "with the control", "fix": "with the fix"}.get(arm, "unchanged")
            rows.append((name, *_cells(branches)))
    heads = ("training", "mean", "sd", "by seed", "samples", "updates", "s/update")
    return Document(
        (
            Headline(f"{trial.verdict.upper()}: {trial.why}."),
            Fields(tuple(_tried(trial)), indented=True),
            Table(
                tuple(rows),
                heads,
                f"{trial.metric} ({better} is better)",
                frozenset({1, 2, 4, 5, 6}),
            ),
        )
    )


def _tried(trial: FixTrial) -> Iterator[Field]:
    yield Field("Fix", trial.fix, copied=True)
    if trial.control:
        yield Field("Control", trial.control, copied=True)


def _cells(branches: list[Branch]) -> list[str]:
    """Return the cells of an arm."""
    values = [branch.value for branch in branches if branch.value is not None]
    steps = [branch.step_s for branch in branches if branch.step_s is not None]
    made = [branch for branch in branches if branch.updates]  # else it failed before
    return [
        f"{statistics.mean(values):.4g}" if values else BLANK,
        f"{statistics.stdev(values):.2g}" if len(values) > 1 else BLANK,
        " ".join(
            "failed" if branch.value is None else f"{branch.value:.4g}" for branch in branches
        ),
        f"{statistics.median(branch.samples for branch in made):,.0f}" if made else BLANK,
        f"{statistics.median(branch.updates for branch in made):,.0f}" if made else BLANK,
        f"{statistics.median(steps):.3g}" if steps else BLANK,
    ]


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
    results.add_line(folder, speed_trial.LEDGER, json.dumps({"at": at, **entry}))
    if json_file is not None:
        save(json_file, json.dumps({**entry, **more}, indent=1) + "\n")
