"""How long a run took whose ranks did not end together."""

import shutil

import pytest
from golden.record import RUNS

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run


def test_a_run_takes_as_long_as_its_longest_rank_and_not_as_the_one_that_failed(tmp_path):
    shutil.copytree(RUNS / "raises", tmp_path / "raises")
    run = open_run(tmp_path / "raises")
    spans = {number: rank.span_ns for number, rank in run.ranks.items()}
    took = sorted((end - begin) / 1e9 for begin, end in spans.values())
    assert took[0] < 0.9 * took[1]

    report = recorded_report(run)

    assert report.run.duration_s == pytest.approx(took[1])
    assert report.run.ended_by == "ValueError"
