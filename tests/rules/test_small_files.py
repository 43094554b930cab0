import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.facts import Traffic
from feedline.analysis.finding import Severity
from feedline.analysis.rules.input.small_files import check

READING = {"read": (0.18, 0.0, 5.32)}  # 53 % of the sample
SMALL = Traffic(read_chars=24_000.0, read_calls=6.0, disk_bytes=0.0, major_faults=0.0)


def test_many_small_reads_are_a_finding():
    finding = check(waiting(60.0, sample=READING, traffic=SMALL))

    assert (finding.rule_id, finding.severity) == ("small_files", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 5.5 / 10)
    assert "in 6.00 reads of 4.00 kB" in finding.message


def test_it_is_silent_from_64_kib_a_read():
    assert check(waiting(sample=READING, traffic=Traffic(3 * 65536.0, 3.0, 0.0, 0.0))) is None


def test_it_is_silent_where_reading_is_a_small_part_of_the_sample():
    assert check(waiting(sample={"read": (0.4, 0.0, 1.4)}, traffic=SMALL)) is None  # 29 %


def test_unpacking_what_was_read_is_no_small_read():
    assert check(waiting(sample={"read": (14.0, 0.0, 0.0)}, traffic=Traffic(1.3e6, 35.0, 0.0, 0.0))) is None


UNSEEN = {"read": (0.0, 0.0, 0.0), "dataset": (0.5, 0.0, 4.0)}


def test_reads_that_no_hook_saw_show_as_blocked_in_files():
    assert check(waiting(sample=UNSEEN, traffic=SMALL, maker={"blocked_by": {"file": 0.9, "sleep": 0.1}, "blocked_looks": 50}))


@pytest.mark.parametrize("seen", [{}, {"blocked_by": {"another process": 1.0}, "blocked_looks": 50}])
def test_it_is_silent_where_what_blocks_a_sample_is_not_known_to_be_files(seen):
    assert check(waiting(sample=UNSEEN, traffic=SMALL, maker=seen)) is None


def test_it_is_silent_below_one_read_per_sample():
    assert check(waiting(sample=READING, traffic=Traffic(16.6, 0.435, 0.0, 0.0))) is None


@pytest.mark.parametrize("traffic", [Traffic(None, None, None, None), Traffic(0.0, 0.0, 0.0, 0.0)])
def test_it_is_silent_where_reads_are_unknown_or_none(traffic):
    assert check(waiting(sample=READING, traffic=traffic)) is None


def test_a_healthy_training_may_read_small_files():
    assert check(made_up_facts(traffic=SMALL)) is None
