"""Summarises trainings as a table."""

import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import metadata

from acceptance import gates, model
from acceptance.arms import REFERENCE, Arm
from acceptance.claims import claims_of
from acceptance.data import Data, Recipe
from acceptance.result import Comparison, Row, Table
from acceptance.statistics import difference, holm
from acceptance.train import Run


def summarize(
    arms: Sequence[Arm],
    seeds: Sequence[int],
    runs: Sequence[Run],
    data: Data,
    wall_s: float,
    interrupted: bool = False,
) -> Table:
    """Summarise; arms without a training yet are left out."""
    rows = [row for arm in arms if (row := row_of(arm, runs)) is not None]
    comparisons = compare(rows)
    checked = gates.check({row.arm.letter: row.test_mean for row in rows})
    notes = list(_notes(rows, seeds, interrupted))
    return Table(
        rows,
        comparisons,
        checked,
        claims_of(rows, comparisons),
        list(seeds),
        _settings(data),
        _versions(),
        wall_s,
        interrupted,
        notes,
    )


def row_of(arm: Arm, runs: Sequence[Run]) -> Row | None:
    """The row of an arm; None if none of its trainings is done."""
    ours = sorted((run for run in runs if run.letter == arm.letter), key=lambda run: run.seed)
    if not ours:
        return None
    tests = [run.test for run in ours]
    row = Row(
        arm,
        ours,
        statistics.fmean(tests),
        statistics.stdev(tests) if len(tests) > 1 else None,
        None,
    )
    return (
        row
        if row.diverged
        else replace(row, train_loss=statistics.fmean(run.train_loss for run in ours))
    )


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Every question whose two arms are present.

    The p values of each family are corrected together.
    """
    by_letter = {row.arm.letter: row for row in rows}
    asked = [
        (row, by_letter.get(other)) for row in rows for other in (row.arm.control, *row.arm.also)
    ]
    found = _family("control", [(row, other) for row, other in asked if other is not None])
    reference = by_letter.get(REFERENCE)
    if reference is not None:
        found += _family(
            "reference", [(row, reference) for row in rows if row.arm.batch > reference.arm.batch]
        )
    return found


def _family(name: str, pairs: Sequence[tuple[Row, Row]]) -> list[Comparison]:
    made = []
    for row, other in pairs:
        both = {run.seed for run in row.runs} & {
            run.seed for run in other.runs
        }  # all, unless the table was interrupted
        tests = [[run.test for run in one.runs if run.seed in both] for one in (row, other)]
        if both:
            ratio = row.arm.epochs / other.arm.epochs
            made.append(
                Comparison(row.arm.letter, other.arm.letter, name, difference(*tests), None, ratio)
            )
    known = [index for index, one in enumerate(made) if one.difference.p is not None]
    corrected = holm([p for one in made if (p := one.difference.p) is not None])
    for index, p in zip(known, corrected):
        made[index] = replace(made[index], p_holm=p)
    return made


def _notes(rows: Sequence[Row], seeds: Sequence[int], interrupted: bool) -> list[str]:
    notes = [
        f"{row.arm.letter} diverged with seed {', '.join(map(str, row.diverged))}"
        for row in rows
        if row.diverged
    ]
    if interrupted:
        notes.append(
            "interrupted: "
            + ", ".join(f"{row.arm.letter} has {len(row.runs)}" for row in rows)
            + f" of {len(seeds)} seeds; arms are compared by the seeds that both have"
        )
    elif len(seeds) != gates.SEEDS:
        notes.append(f"the bounds of the gates are meant for {gates.SEEDS} seeds")
    return notes


def _settings(data: Data) -> dict[str, object]:
    return {
        "data": {
            "recipe": asdict(Recipe()),
            "fingerprint": data.fingerprint(),
            "train": len(data.x),
            "test": len(data.x_test),
        },
        "model": {"channels": model.CHANNELS, "ghost": model.GHOST},
        "units": {"test": "percent", "train_loss": "nats"},
    }


def _versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "mnist1d")}
    return {"python": platform.python_version(), **found}
