"""Contradictions planted into a report that has none: each is found."""

import importlib
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import torch
from golden.record import OF_A_GPU, RUNS
from planted import photos
from report.made_up import VARIANTS, report
from truth import one_number
from truth.costs import COSTS, PART
from warm_python import WarmPython

import feedline
from feedline.__main__ import main
from feedline.analysis import rules
from feedline.analysis.explain.model import Report, Verdict
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.ledger.finding import Finding, PredictedRate, Severity
from feedline.profiler.store.trainings import open_run

MS = 1e-3
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_imagefolder.py"


#: The others are made of these by taking away what their findings are about.
OWN_FINDINGS = ("full", "refused", "no steps", "four ranks")


@pytest.mark.parametrize(
    "variant",
    [
        "full",
        "refused",
        "no steps",
        "no workers",
        "one step",
        "unmeasured",
        "four ranks",
        "operators",
        "training",
    ],
)
def test_reports_without_a_contradiction_pass(variant: str) -> None:
    made = VARIANTS[variant]()
    if variant not in OWN_FINDINGS:
        verdict = replace(made.verdict, gain=None)
        made = replace(made, findings=[], together=None, verdict=verdict)
    one_number.check(made)


def with_finding(
    rule_id: str, cost_s: float, message: str = "it costs time", severity: Severity = Severity.HIGH
) -> Callable[[Report], Report]:
    return lambda made: replace(
        made,
        findings=[Finding(rule_id, severity, message, cost_s=cost_s, refused="It is unknown.")],
        together=None,
    )


def with_rate(**changes: float) -> Callable[[Report], Report]:
    """A prediction that is another than the one which the verdict tells."""

    def changed(made: Report) -> Report:
        first, *others = report().findings
        assert first.predicted is not None
        return replace(
            report(),
            findings=[replace(first, predicted=replace(first.predicted, **changes)), *others],
        )

    return changed


def with_step(**changes: Any) -> Callable[[Report], Report]:
    def changed(made: Report) -> Report:
        assert made.step is not None
        return replace(made, step=replace(made.step, **changes))

    return changed


STRAGGLER = (
    "Rank 1 is the straggler (slow decode): the other 3 ranks wait for it in 9 of 9 "
    "steps, {} on average."
)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (with_step(mean_s=1.0), "the stages sum to"),
        (with_step(waits={"starved": 50 * MS}), "the kinds of waiting sum to"),
        (
            with_finding("compute_bound", 1 * MS),
            "compute_bound costs 0.001; by the report's figures",
        ),
        (
            with_finding("decode_bound", 0.5 * MS),
            "decode_bound costs 0.0005; by the report's figures",
        ),
        (
            with_finding("cold_storage", 170 * MS),
            "cold_storage costs 0.17; by the report's figures",
        ),
        (with_finding("cpu_saturated", 1.0), "of a step of"),
        (with_finding("some_new_rule", 1 * MS), "what some_new_rule costs is worked out nowhere"),
        (with_finding("input_not_seen", 0.0, "12.0 ms of each 90.0 ms step"), "a step of 90.0 ms"),
        (
            with_finding("input_not_seen", 0.0, "the largest stage is forward (1.00 ms)"),
            "forward takes 1.00 ms",
        ),
        (
            with_finding("input_not_seen", 0.0, "reading takes 12.0 ms"),
            "input_not_seen says 12.0 ms, which is none of its evidence",
        ),
        (
            with_finding("input_not_seen", 0.0, "reading is 12.3 % of it"),
            "input_not_seen says 12.3 %, which is none of its evidence",
        ),
        (
            lambda made: replace(made, headline="It waited 7.77 ms for its disk."),
            "7.77 ms is read, and no figure of the report is it",
        ),
        (
            lambda made: replace(made, headline="It trains on 123 samples/s."),
            "123 samples/s is read, and no figure of the report is it",
        ),
        (
            lambda made: replace(made, verdict=Verdict("Input-bound: 1.0 % of it")),
            "1.0 % of the step is input",
        ),
        (
            lambda made: replace(
                made, verdict=Verdict("Up to 10.0 ms per step (50.0 %) can be saved")
            ),
            "are not 50.0 %",
        ),
        (
            lambda made: replace(made, headline="The training ended after 3 steps."),
            "it ended after 3 steps",
        ),
        (with_rate(before=170.0), "is predicted from 170.0 samples/s, the training made 176"),
        (with_rate(low=270.0), "is predicted to give 262.4, which is not between 270.0 and 277.3"),
        (
            with_rate(after=410.0, low=400.0, high=420.0),
            "is predicted to give 400.0 and more, the next limit is",
        ),
        (with_rate(after=263.4), "gives 262.4, it is predicted to give 263.4"),
        (
            lambda made: replace(
                made, findings=[replace(made.findings[0], refused="It is unknown.")]
            ),
            "neither predicted nor refused, or both",
        ),
        (
            lambda made: replace(made, together=PredictedRate(150.0, 280.0, 260.0, 300.0)),
            "all fixes together is predicted from 150.0",
        ),
        (
            lambda made: replace(
                made, verdict=Verdict("rank 1 is 5.00 ms late. Rank 1 is 6.00 ms late")
            ),
            "of 1 it says",
        ),
        (
            lambda made: replace(
                made,
                verdict=Verdict(STRAGGLER.format("5.00 ms")),
                notes=[STRAGGLER.format("6.00 ms")],
            ),
            "of 1 it says",
        ),
        (
            lambda made: replace(made, notes=["its process ended without saying goodbye"]),
            "'goodbye'",
        ),
        (
            lambda made: replace(
                made, findings=[Finding("a", Severity.LOW, "a"), Finding("b", Severity.HIGH, "b")]
            ),
            "severity rises down the list",
        ),
    ],
)
def test_a_planted_contradiction_is_found(plant: Callable[[Report], Report], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        one_number.check(plant(report()))


class WarmsUp(torch.utils.data.Dataset[torch.Tensor]):
    """The first batch of four takes 0.2 s, the others 8 ms."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made += 1
        time.sleep(0.05 if self.made <= 4 else 0.002)
        return torch.rand(8)


def test_the_first_batch_is_in_no_mean_of_what_a_batch_takes(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with feedline.record(tmp_path / "run", strict=True):
        for batch in torch.utils.data.DataLoader(WarmsUp(), 4):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    made = recorded_report(open_run(tmp_path / "run"))

    assert made.workers is not None and made.step is not None
    assert made.workers.fetch_mean_s == pytest.approx(
        sum(made.step.stages[name] for name in ("dataset", "collate")), rel=0.05
    )
    one_number.check(made)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_report_of_the_example_does_not_contradict_itself(
    warm_python: WarmPython, tmp_path: Path, workers: int
) -> None:
    for kind in ("cats", "rockets"):
        photos.write(tmp_path / "photos" / kind, 160, 120, 24)
    options = (
        "--epochs",
        2,
        "--batch-size",
        4,
        "--size",
        32,
        "--model",
        "squeezenet1_1",
        "--workers",
        workers,
    )

    done = warm_python.run(
        "-m", "feedline", "run", "-q", "-o", "run", EXAMPLE, "photos", *options, folder=tmp_path
    )

    assert done.returncode == 0, done.stderr[-2000:]
    one_number.check_run(tmp_path / "run")


def test_what_every_cause_costs_is_worked_out_here_too() -> None:
    modules = [
        importlib.import_module(one.name)
        for one in walk_packages(rules.__path__, f"{rules.__name__}.")
    ]
    causes = {
        getattr(module, name)
        for module in modules
        for name in ("RULE_ID", "_RULE_ID", "SPREAD", "_SPREAD", "SLOW", "_SLOW")
        if hasattr(module, name)
    }

    assert len(causes) > 25
    assert causes <= COSTS.keys() | PART.keys()


@pytest.mark.parametrize("name", OF_A_GPU)
def test_reports_of_a_gpu_do_not_contradict_themselves(name: str, tmp_path: Path) -> None:
    shutil.copytree(RUNS / name, tmp_path / name)

    assert main(["report", "-q", str(tmp_path / name)]) == 0

    one_number.check_run(tmp_path / name)
