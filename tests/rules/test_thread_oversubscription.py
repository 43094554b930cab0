import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.thread_oversubscription import _check

FULL = {
    "used_cpus": 7.8,
    "process_cpu_s": 14.4e-3,
}  # three times the 4.8 ms of the threads that make a sample


def test_helper_threads_on_full_cpus_are_a_finding():
    finding = _check(waiting(60.0, **FULL, operations={"augment/cv2.resize": 1.0}))

    assert (finding.rule_id, finding.severity) == ("thread_oversubscription", Severity.HIGH)
    assert finding.cost_s == pytest.approx(
        (60e-3 + 0.4e-3) * 2 / 3
    )  # also what receiving takes, on full CPUs
    assert "67 % of the CPU time of 4 workers, while the CPUs are saturated" in finding.message
    assert "cv2.setNumThreads(0)" in finding.fix


@pytest.mark.parametrize(
    "change",
    [{"process_cpu_s": 1.2 * 4.8e-3}, {"process_cpu_s": None}, {"settings": {"num_workers": 0}}],
)
def test_it_is_silent_without_helper_threads(change):
    assert _check(waiting(**(FULL | change))) is None


def test_helper_threads_on_free_cpus_do_good():
    assert _check(waiting(**(FULL | {"used_cpus": 5.0}))) is None


def test_the_thread_that_sends_batches_is_accounted_for():
    assert (
        _check(waiting(**(FULL | {"process_cpu_s": 7.2e-3}), sample={"transport": (2.4, 0.0, 0.0)}))
        is None
    )


def test_a_healthy_training_may_use_helper_threads():
    assert _check(made_up_facts(**FULL)) is None
