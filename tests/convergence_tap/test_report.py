"""What a recorded training's report and trace say of its convergence."""

import json

import pytest

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.report import perfetto_trace
from feedline.profiler.store.trainings import open_run


def test_a_training_whose_ranks_see_the_same_data_hears_it_first(two_ranks):
    report = recorded_report(open_run(two_ranks / "same_data"))

    assert report.findings[0].rule_id == "same_data"
    assert report.verdict.limit.startswith("Misconfigured: Both ranks train on the same samples")
    assert "same_data" in report.convergence.noise.why


def test_a_healthy_training_hears_of_its_speed_and_has_curves(two_ranks):
    report = recorded_report(open_run(two_ranks / "ddp"))

    assert report.convergence.checks == []
    assert {"train loss", "lr"} <= {curve.name for curve in report.convergence.curves}


def test_the_trace_draws_the_loss_as_a_curve_and_no_number_as_a_span(two_ranks, tmp_path):
    run = open_run(two_ranks / "ddp")
    perfetto_trace.write(run, tmp_path / "one.trace.json")
    events = json.loads((tmp_path / "one.trace.json").read_text())["traceEvents"]

    drawn = [
        event["args"]["train loss"]
        for event in events
        if event["ph"] == "C" and event["name"] == "train loss" and event["pid"] == 0
    ]
    (curve,) = (
        curve for curve in recorded_report(run).convergence.curves if curve.name == "train loss"
    )
    assert drawn == pytest.approx(curve.values)
    assert not {"value", "gradient"} & {event["name"] for event in events}
