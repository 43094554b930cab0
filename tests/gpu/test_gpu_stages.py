"""From GPU records in a run folder to the report.

The records are written by hand, as taps/gpu_timer.py writes them.
"""

import json
from pathlib import Path

import pytest
from gpu.made_up import MS

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.report import html_report, perfetto_trace, terminal
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.session.session import Session
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import open_run

STEP = {
    Stage.FORWARD: (10, 20),
    Stage.BACKWARD: (10, 40),
    Stage.OPTIMIZER: (5, 2),
}  # ms on the host, on the GPU


def record(folder: Path, steps: int = 6, untimed: tuple[int, ...] = (), timed: bool = True) -> Run:
    """A run of equal steps; the GPU's records come a step late, when another window may have begun."""
    session = Session(folder, ["made-up"])
    segment, now, late = recorder.main, 1_000 * MS, []
    assert segment is not None
    for step in range(steps):
        pending, gpu = [], now + 3 * MS
        for stage, (host, took) in STEP.items():
            segment.add(
                stage,
                now,
                host * MS,
                number=1,
                flags=int(Flag.TRAINING | Flag.GRAD) if stage is Stage.FORWARD else 0,
            )
            if timed and step not in untimed:
                pending.append((Stage.GPU, gpu, took * MS, now, stage))
                gpu += took * MS
            now += host * MS
        now += 50 * MS
        for stage, start, wall, number, extra in late:
            segment.add(stage, start, wall, number=number, extra=extra)
        late = pending
    for stage, start, wall, number, extra in late:
        segment.add(stage, start, wall, number=number, extra=extra)
    session.stop()
    return open_run(folder)


def test_the_mean_step_has_the_gpus_seconds_beside_the_hosts(tmp_path):
    step = recorded_report(record(tmp_path / "run")).step

    assert step.gpu_stages == pytest.approx(
        {"forward": 0.020, "backward": 0.040, "optimizer": 0.002}
    )
    assert step.stages["forward"] == pytest.approx(0.010)


def test_gpu_records_do_not_move_the_boundaries_of_steps(tmp_path):
    with_gpu, without = (
        recorded_report(record(tmp_path / name, timed=timed)).step
        for name, timed in (("a", True), ("b", False))
    )

    assert with_gpu.stages == without.stages
    assert with_gpu.series == without.series


def test_a_step_that_was_not_timed_is_left_out_of_the_gpus_mean(tmp_path):
    step = recorded_report(record(tmp_path / "run", untimed=(2, 3))).step

    assert step.gpu_stages["forward"] == pytest.approx(0.020)


def test_without_gpu_records_there_is_none_and_a_hook_says_why(tmp_path):
    report = recorded_report(record(tmp_path / "run", timed=False))

    assert report.step.gpu_stages is None


def test_the_terminal_report_has_a_column_for_the_gpu(tmp_path):
    text = terminal.render(recorded_report(record(tmp_path / "run")))

    (line,) = (line for line in text.splitlines() if line.strip().startswith("backward"))
    assert "GPU span" in text
    assert "40.00" in line and "10.00" in line
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_html_report_has_a_bar_for_the_gpu_only_where_one_was_timed(tmp_path):
    with_gpu, without = (
        html_report.render(recorded_report(record(tmp_path / name, timed=timed)))
        for name, timed in (("a", True), ("b", False))
    )

    assert 'id="gpu"' in with_gpu and "backward 40.00 ms" in with_gpu
    assert 'id="gpu"' not in without


def test_the_trace_has_a_track_for_the_gpu(tmp_path):
    perfetto_trace.write(record(tmp_path / "run"), tmp_path / "a.trace.json")
    found = json.loads((tmp_path / "a.trace.json").read_text())["traceEvents"]

    (track,) = {
        event["tid"] for event in found if event.get("args", {}).get("name") == "training, GPU"
    }
    spans = [event for event in found if event["ph"] == "X" and event["tid"] == track]
    assert [span["name"] for span in spans][:2] == ["forward", "backward"]
    assert len(spans) == 18
