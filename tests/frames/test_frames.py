"""Frames of a loaded run agree with its report, and hold the columns that their documentation
names.
"""

import numpy as np
import pytest
from frames.conftest import BATCH, BATCHES, EPOCHS, SHORT_STEPS

import feedline
from feedline.analysis.measure.stages import SAMPLE_STAGES
from feedline.analysis.report.loaded import ALL_FRAMES, LoadedRun
from feedline.analysis.report.run_frames import _column_of

PARTS = [f"{stage}_s" for stage in SAMPLE_STAGES if stage not in ("collate", "transport")]


def test_steps_are_those_of_the_report(mine):
    run = feedline.load(mine)
    steps, report = run.steps, run.report
    counted = steps[steps["in_mean"]]

    assert len(steps) == steps["stands_for"].sum() == report.throughput.steps == EPOCHS * BATCHES
    assert steps["samples"].sum() == report.throughput.samples == EPOCHS * BATCHES * BATCH
    assert counted["wall_s"].mean() == pytest.approx(report.step.mean_s)
    assert counted["wall_s"].median() == pytest.approx(report.step.median_s)
    assert not steps["in_mean"].iloc[0]
    assert counted[run.stages].mean().tolist() == pytest.approx(list(report.step.stages.values()))
    assert steps[run.stages].sum(axis=1).tolist() == pytest.approx(steps["wall_s"].tolist())
    assert run.stages == [_column_of(stage) for stage in report.step.stages]
    assert "mixup_s" in run.stages
    assert (steps["start_s"].diff().dropna() >= steps["wall_s"].iloc[:-1].to_numpy() - 1e-9).all()
    assert (
        abs(
            (steps["time"].iloc[-1] - steps["time"].iloc[0]).total_seconds()
            - np.ptp(steps["start_s"])
        )
        < 1e-6
    )
    assert steps["time"].iloc[0].isoformat() >= report.run.started


def test_samples_are_those_of_the_report(mine):
    run = feedline.load(mine)
    samples, costs = run.samples, run.report.workers.per_sample
    counted = samples[samples["in_mean"]]
    weights = counted["stands_for"]
    made_s = sum(costs[stage].wall_s for stage in costs if f"{stage}_s" in PARTS)

    assert counted["samples"].sum() == run.report.workers.samples_in_detail
    assert 0 < len(counted) < len(samples), "the first of each worker are cold"
    assert samples[PARTS].sum(axis=1).tolist() == pytest.approx(samples["wall_s"].tolist())
    for part in PARTS:
        share = np.average(counted[part], weights=weights) / np.average(
            counted["wall_s"], weights=weights
        )
        cost = costs.get(part.removesuffix("_s"))
        assert share == pytest.approx(cost.wall_s / made_s if cost else 0.0)
    assert counted["user_s"].min() > 0.001, "it sleeps that long"
    assert set(samples["process"]) == {"loader0-worker0", "loader0-worker1"}
    assert set(samples["worker"]) == {0, 1}
    assert set(samples["epoch"]) == set(range(EPOCHS))
    assert samples["batch"].max() < BATCHES
    assert (samples["wall_s"] >= samples["cpu_s"] - 1e-4).all()


def test_a_step_stands_for_those_that_were_only_counted(short):
    run = feedline.load(short)
    steps, report = run.steps, run.report
    counted = steps[steps["in_mean"]]

    assert len(steps) == report.throughput.steps_in_detail < SHORT_STEPS
    assert steps["stands_for"].sum() == pytest.approx(report.throughput.steps) == SHORT_STEPS
    assert steps["step"].is_unique and steps["step"].max() < SHORT_STEPS
    assert (steps["step"] - np.arange(len(steps))).max() > 0, (
        "numbers go on over the steps that were only counted"
    )
    assert counted["stands_for"].sum() == pytest.approx(report.step.sampled.counted + len(counted))
    assert (steps["stands_for"] > 1).sum() == report.step.sampled.recorded


def test_gauges_are_those_of_the_report(short):
    run = feedline.load(short)

    assert set(run.gauges["gauge"]) == {gauge.name for gauge in run.report.gauges} != set()
    for gauge in run.report.gauges:
        rows = run.gauges[run.gauges["gauge"] == gauge.name]
        assert set(rows["unit"]) == {gauge.unit}
        assert (rows["value"].min(), rows["value"].max()) == (gauge.minimum, gauge.maximum)
        assert rows["start_s"].tolist() == pytest.approx(gauge.at_s)


def test_findings_are_those_of_the_report(mine):
    run = feedline.load(mine)

    assert run.findings["cause"].tolist() == [finding.rule_id for finding in run.report.findings]
    for row, finding in zip(run.findings.to_dict("records"), run.report.findings, strict=True):
        assert (row["severity"], row["says"], row["fix"]) == (
            finding.severity.value,
            finding.message,
            finding.fix,
        )
        assert row["cost_s"] == finding.cost_s or not finding.cost_s


def test_each_training_of_a_sweep_has_its_own_steps(sweep):
    runs = feedline.load_all(sweep)

    assert [run.steps["samples"].sum() for run in runs] == [5 * BATCH, 7 * BATCH]
    assert [run.steps["step"].tolist() for run in runs] == [list(range(5)), list(range(7))]
    assert all(0 <= run.steps["start_s"].iloc[0] < 1 for run in runs), "since it began itself"


@pytest.mark.parametrize("table", ALL_FRAMES, ids=lambda table: table.name)
@pytest.mark.parametrize("name", ["mine", "short", "nothing"])
def test_a_frame_has_the_columns_that_are_documented(name, table, request):
    run = feedline.load(request.getfixturevalue(name))
    frame = getattr(run, table.name)

    more = run.stages if table.name == "steps" else []
    assert list(frame.columns) == [column.name for column in table.fixed] + more
    for column in table.fixed:
        found = frame[column.name]
        assert column.kind == "text" or column.dtype == str(found.dtype), column.name
        assert column.missing or not found.isna().any(), (
            f"{column.name} is missing, and nothing says when"
        )
    assert all(frame[name].notna().all() for name in more)


def test_a_property_says_what_its_columns_are():
    for table in ALL_FRAMES:
        told = " ".join(getattr(LoadedRun, table.name).__doc__.split())
        assert table.rows in told
        assert [
            column.name for column in table.columns if " ".join(column.text().split()) not in told
        ] == []


def test_a_stage_of_the_user_may_be_called_as_a_column():
    assert _column_of("wall") == "wall_stage_s"
    assert _column_of("wait") == "wait_s"
