"""Every figure of a report of traces is of one basis, the steps.

That it is so in every kind of trace: tests/golden/test_traces.py.
"""

import pytest
from traces.one_basis import reported
from traces.trainings_made import MADE, on_the_cpu, stepless, warmed_up


def test_a_long_warm_up_does_not_dilute_what_the_steps_wait_for(tmp_path, capsys):
    report, _, full = reported([warmed_up(tmp_path / "warm.json")], tmp_path, capsys)

    stall = next(one for one in report["findings"] if one["cause"] == "input_stall")
    assert stall["cost_s"] == pytest.approx(2e-3, rel=0.01)  # of each step of 10 ms
    assert "Figures cover the 4 steps in the trace (40.0 ms of 240 ms)." in full


def test_a_training_without_a_device_is_told_that_it_waits_for_its_loader(tmp_path, capsys):
    report, _, _ = reported([on_the_cpu(tmp_path / "cpu.json")], tmp_path, capsys)

    assert report["verdict"]["limit"].startswith(
        "Input-bound: 50 % of the step is spent waiting for the loader"
    )


def test_a_rank_that_is_late_itself_is_not_said_to_wait(tmp_path, capsys):
    report, _, _ = reported(MADE["two ranks, the second waits"](tmp_path), tmp_path, capsys)

    late = next(one for one in report["findings"] if one["cause"] == "late_rank")
    assert late["blame"]["rank"] == 0
    assert (
        late["says"].startswith("rank 0 is the straggler")
        and "rank 1 waits for others for 15 % of the step" in late["more"]
    )


def test_a_cost_per_step_is_null_where_there_are_no_steps(tmp_path, capsys):
    report, _, _ = reported([stepless(tmp_path / "bare.json")], tmp_path, capsys)

    assert {one["cause"]: one["cost_s"] for one in report["findings"]} == dict.fromkeys(
        ("exposed_copy", "host_bound", "input_not_seen")
    )
