"""What is predicted of reading only the part of a file that a sample uses."""

from dataclasses import replace

import pytest
from rules.made_up import waiting

from feedline.analysis.measure.model import Operation, Traffic
from feedline.analysis.rules.input import oversize_reads

NO_IMAGES = {"decoded_pixels": None, "output_pixels": None}


def reading(*operations):
    """A sample that reads 2 MB, of which its batch gets 64 bytes."""
    return replace(
        waiting(
            sample={"read": (5.0, 0.0, 0.0)},
            loader={"batch_bytes": 32 * 64.0},
            maker=NO_IMAGES | {"operations": list(operations)},
        ),
        traffic=Traffic(2.1e6, 3.0, 0.0, 0.0),
    )


def left(*operations):
    return oversize_reads._change(reading(*operations)).stages["read"]


def test_what_opening_a_file_takes_stays_in_part():
    """The planted fault was 2.2 times as fast without it; reading nothing predicted 3.5."""
    opening = Operation("read", "numpy.load", 262e-6, 177e-6, 1.0)
    bytes_alone = Operation("read", "numpy.fromfile", 331e-6, 290e-6, 1.0)

    assert left(opening, bytes_alone).cpu == pytest.approx(0.35 * 262 / 593)


def test_where_opening_is_not_told_from_reading_the_bytes_count():
    assert left(Operation("read", "open", 5e-3, 5e-3, 1.0)).cpu == pytest.approx(64 / 2.1e6)
    assert left().cpu == pytest.approx(64 / 2.1e6)


def test_the_bytes_of_a_batch_are_of_its_samples_not_of_all_that_a_step_accumulates():
    """Each of 16 batches per step has 2 samples of 600 kB, which read 610 kB of files."""
    facts = replace(
        waiting(
            sample={"read": (5.0, 0.0, 0.0)},
            loader={"batch_bytes": 2 * 600e3},
            maker=NO_IMAGES | {"batches": 3200, "samples": 6400},
        ),
        traffic=Traffic(610e3, 3.0, 0.0, 0.0),
    )

    assert facts.batches_per_step == 16
    assert oversize_reads._check(facts) is None
    few = replace(facts, loader=replace(facts.loader, batch_bytes=2 * 1200.0))
    assert oversize_reads._check(few).message == (
        "each sample reads 610 kB of files, but only 1.20 kB reaches the batch"
    )
