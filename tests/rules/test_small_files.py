from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.model import Operation, Traffic
from feedline.analysis.rules.input.small_files import _check

READING = {"read": (0.18, 0.0, 5.32)}  # 53 % of the sample
SMALL = Traffic(read_chars=24_000.0, read_calls=6.0, disk_bytes=0.0, major_faults=0.0)


def test_many_small_reads_are_a_finding():
    finding = _check(waiting(60.0, sample=READING, traffic=SMALL))

    assert (finding.rule_id, finding.severity) == ("small_files", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 5.5 / 10)
    assert "reads 6 small pieces of 4.00 kB" in finding.message


OPENED = Operation("read", "PIL.open", 4e-3, 1e-4, 1.0)
PHOTO = Traffic(read_chars=117e3, read_calls=4.13, disk_bytes=119e3, major_faults=0.0)


def opening(*operations, **changes):
    return waiting(60.0, sample=READING, maker={"operations": [*operations]}, **changes)


def test_a_photograph_that_is_read_in_pieces_is_not_small_but_its_disk_is_slow():
    facts = opening(OPENED, traffic=PHOTO)

    assert _check(facts) is None
    assert diagnose(facts)[0].rule_id == "cold_storage"


def test_files_are_counted_where_they_are_opened():
    several = opening(
        replace(OPENED, name="numpy.load", calls=24.0), traffic=replace(PHOTO, read_calls=72.0)
    )

    finding = _check(several)

    assert "reads 24 files of 4.88 kB" in finding.message
    assert {one.id: one.value for one in finding.evidence}["file_bytes"] == pytest.approx(
        117e3 / 24
    )
    assert _check(opening(replace(OPENED, calls=1.7), traffic=PHOTO)) is None  # 69 kB each


def test_images_that_are_opened_from_memory_are_no_files():
    assert (
        _check(opening(replace(OPENED, calls=24.0), traffic=Traffic(480e3, 6.0, 0.0, 0.0))) is None
    )


def test_one_file_is_told_as_one():
    facts = opening(replace(OPENED, name="numpy.fromfile"), traffic=Traffic(20e3, 5.0, 0.0, 0.0))

    assert "reads 1 file of 20.0 kB" in _check(facts).message


def test_reads_without_a_hook_are_pieces_of_one_file_unless_they_are_smaller_than_any_buffer():
    assert _check(opening(traffic=Traffic(200e3, 25.0, 0.0, 0.0))) is None  # of 8 kB
    assert (
        "reads 100 small pieces of 2.00 kB"
        in _check(opening(traffic=Traffic(200e3, 100.0, 0.0, 0.0))).message
    )


def test_each_chunk_of_a_zarr_array_is_a_file():
    assert _check(
        opening(replace(OPENED, name="zarr.Array"), traffic=Traffic(200e3, 20.0, 0.0, 0.0))
    )


def test_it_is_silent_from_64_kib():
    assert _check(waiting(sample=READING, traffic=Traffic(65536.0, 3.0, 0.0, 0.0))) is None


def test_it_is_silent_where_reading_is_a_small_part_of_the_sample():
    assert _check(waiting(sample={"read": (0.4, 0.0, 1.4)}, traffic=SMALL)) is None  # 29 %


def test_unpacking_what_was_read_is_no_small_read():
    assert (
        _check(waiting(sample={"read": (14.0, 0.0, 0.0)}, traffic=Traffic(1.3e6, 35.0, 0.0, 0.0)))
        is None
    )


UNSEEN = {"read": (0.0, 0.0, 0.0), "dataset": (0.5, 0.0, 4.0)}


def test_reads_that_no_hook_saw_show_as_blocked_in_files():
    assert _check(
        waiting(
            sample=UNSEEN,
            traffic=SMALL,
            maker={"blocked_by": {"file": 0.9, "sleep": 0.1}, "blocked_looks": 50},
        )
    )


@pytest.mark.parametrize(
    "seen", [{}, {"blocked_by": {"another process": 1.0}, "blocked_looks": 50}]
)
def test_it_is_silent_where_what_blocks_a_sample_is_not_known_to_be_files(seen):
    assert _check(waiting(sample=UNSEEN, traffic=SMALL, maker=seen)) is None


def test_it_is_silent_below_one_read_per_sample():
    assert _check(waiting(sample=READING, traffic=Traffic(16.6, 0.435, 0.0, 0.0))) is None


@pytest.mark.parametrize("traffic", [Traffic(None, None, None, None), Traffic(0.0, 0.0, 0.0, 0.0)])
def test_it_is_silent_where_reads_are_unknown_or_none(traffic):
    assert _check(waiting(sample=READING, traffic=traffic)) is None


def test_a_healthy_training_may_read_small_files():
    assert _check(made_up_facts(traffic=SMALL)) is None
