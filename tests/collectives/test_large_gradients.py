"""Gradients that take longest to send are what the report names, although they are sent while
backward runs.
"""

import pytest
from collectives.launching import launch, say_what_went_wrong

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run


@pytest.mark.quiet
def test_a_backward_that_mostly_sends_its_gradients_is_not_called_computing(tmp_path, warm_python):
    say_what_went_wrong(launch(tmp_path, "large_gradients.py", 2, warm=warm_python))

    report = recorded_report(open_run(tmp_path / "run"))

    assert "exposed_communication" in [finding.rule_id for finding in report.findings], (
        report.verdict
    )
    for rank in report.ranks.values():
        assert rank.comm.exposed_transfer_s > 10 * rank.comm.hidden_transfer_s, (
            "its only bucket is full when the last gradient is"
        )
