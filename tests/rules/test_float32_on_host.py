from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.float32_on_host import _check

FLOATS = {"flags": ["float32", "shared"], "batch_bytes": 4 * 32 * 3 * 224 * 224}
OPERATIONS = {
    "augment/torchvision.transforms.transforms.ToTensor": 1.5,
    "augment/Normalize": 0.42,
    "augment/RandomResizedCrop": 0.1,
}


def test_conversion_collate_and_transport_of_float32_are_added_up():
    finding = _check(
        waiting(60.0, loader=FLOATS, operations=OPERATIONS, stages={"transport": 8.0, "copy": 4.0})
    )

    assert (finding.rule_id, finding.severity) == ("float32_on_host", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * (1.92 + 0.75 * 0.5) / 4.8 + 0.75 * 12e-3)
    assert finding.message.endswith("take 19.3 MB")
    assert finding.more == ["as uint8, images take a quarter of the bytes"]


def test_uint8_batches_are_as_they_should_be():
    assert _check(waiting(operations=OPERATIONS)) is None


def test_images_of_sixteen_bits_are_not_to_become_bytes():
    wide = waiting(60.0, loader=FLOATS, operations=OPERATIONS, stages={"copy": 4.0})
    maker = wide.workers
    decode = replace(maker.per_sample["decode"], bytes=2.0 * maker.decoded_pixels)
    maker = replace(maker, per_sample={**maker.per_sample, "decode": decode})

    assert _check(wide) is not None
    assert _check(replace(wide, workers=maker)) is None


def test_floats_that_no_picture_was_decoded_for_are_the_users_own():
    assert (
        _check(waiting(loader=FLOATS, operations=OPERATIONS, maker={"decoded_pixels": 0.0})) is None
    )


def test_it_is_silent_where_it_costs_less_than_five_percent_of_the_step():
    cheap = {"augment/ToTensor": 0.1}

    assert (
        _check(waiting(60.0, loader=FLOATS, operations=cheap, sample={"collate": (0.2, 0.0, 0.0)}))
        is None
    )


def test_a_healthy_training_may_hand_over_float32():
    assert _check(made_up_facts(loader=FLOATS, operations=OPERATIONS)) is None
