"""Contradictions planted into a report that has none: each is found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted import photos
from reports.made_up import VARIANTS, report
from truth import one_number
from warm_python import WarmPython

from feedline.analysis.finding import Finding, Severity
from feedline.analysis.model import Report

MS = 1e-3
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_imagefolder.py"


@pytest.mark.parametrize("variant", ["full", "no steps", "no workers", "one step", "unmeasured", "four ranks", "operators", "training"])
def test_reports_without_a_contradiction_pass(variant: str) -> None:
    one_number.check(VARIANTS[variant]())


def with_finding(cause: str, cost_s: float, says: str = "it costs time", severity: Severity = Severity.HIGH) -> Callable[[Report], Report]:
    return lambda made: replace(made, findings=[Finding(cause, severity, says, cost_s=cost_s)])


def with_step(**changes: Any) -> Callable[[Report], Report]:
    def changed(made: Report) -> Report:
        assert made.step is not None
        return replace(made, step=replace(made.step, **changes))

    return changed


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (with_step(mean_s=1.0), "the stages sum to"),
        (with_step(waits={"starved": 50 * MS}), "the kinds of waiting sum to"),
        (with_finding("compute_bound", 1 * MS), "compute_bound costs 0.001; by the stages"),
        (with_finding("decode_bound", 0.5 * MS), "decode_bound costs 0.0005; by the stages"),
        (with_finding("small_files", 170 * MS), "all of the input takes"),
        (with_finding("busy_neighbors", 1.0), "of a step of"),
        (with_finding("busy_neighbors", 1 * MS, "12.0 ms of each 90.0 ms step"), "a step of 90.0 ms"),
        (with_finding("busy_neighbors", 1 * MS, "the largest part of the step is forward (1.00 ms)"), "forward takes 1.00 ms"),
        (lambda made: replace(made, verdict="Input-bound, 1.0 % of it"), "1.0 % of the step is input"),
        (lambda made: replace(made, verdict="Up to 10.0 ms per step (50.0 %) can be saved"), "are not 50.0 %"),
        (lambda made: replace(made, headline="The training ended after 3 steps."), "it ended after 3 steps"),
        (lambda made: replace(made, verdict="rank 1 is 5.00 ms late. Rank 1 is the straggler: 6.00 ms late"), "of 1 it says"),
        (lambda made: replace(made, notes=["its process ended without saying goodbye"]), "'goodbye'"),
        (
            lambda made: replace(made, findings=[Finding("a", Severity.LOW, "a"), Finding("b", Severity.HIGH, "b")]),
            "severity rises down the list",
        ),
    ],
)
def test_a_planted_contradiction_is_found(plant: Callable[[Report], Report], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        one_number.check(plant(report()))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_report_of_the_example_does_not_contradict_itself(warm_python: WarmPython, tmp_path: Path, workers: int) -> None:
    for kind in ("cats", "rockets"):
        photos.write(tmp_path / "photos" / kind, 160, 120, 24)
    options = ("--epochs", 2, "--batch-size", 4, "--size", 32, "--model", "squeezenet1_1", "--workers", workers)

    done = warm_python.run("-m", "feedline", "run", "-q", "-o", "run", EXAMPLE, "photos", *options, folder=tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    one_number.check_run(tmp_path / "run")
