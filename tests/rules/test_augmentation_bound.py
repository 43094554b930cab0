from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from text.breath import said

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.augmentation_bound import _check

OPERATIONS = {
    "augment/GaussianBlur": 7.0,
    "augment/ColorJitter": 2.5,
    "augment/Resize": 0.2,
    "augment/Pad": 0.1,
    "decode/load": 2.0,
}


def test_augmentation_that_takes_most_of_the_cpu_names_its_heaviest_operations():
    finding = _check(waiting(60.0, sample={"augment": (9.9, 0.0, 0.0)}, operations=OPERATIONS))

    assert (finding.rule_id, finding.severity) == ("augmentation_bound", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 9.9 / 13.2)
    assert "mostly in GaussianBlur (7.00 ms)" in finding.message
    assert [(e.id, e.of) for e in finding.evidence[2:]] == [
        ("operation_cpu_s", name) for name in ("GaussianBlur", "ColorJitter", "Resize")
    ]


@pytest.mark.parametrize(("own", "named"), [(4.0, "GaussianBlur"), (40.0, "Compose")])
def test_what_a_compose_takes_itself_is_named_only_where_it_is_most(own, named):
    finding = _check(
        waiting(
            60.0,
            sample={"augment": (9.9 + own, 0.0, 0.0)},
            operations={**OPERATIONS, "augment/Compose": own},
        )
    )

    assert f"mostly in {named} (" in finding.message
    assert ("transforms of your own" in said(finding)) == (named == "Compose")


@pytest.mark.parametrize(
    ("cut_first", "fix"),
    [(None, "Crop or resize "), (False, "Crop or resize "), (True, "Transform whole batches")],
)
def test_samples_that_are_cut_already_are_not_told_to_be(cut_first, fix):
    facts = waiting(60.0, sample={"augment": (9.9, 0.0, 0.0)}, operations=OPERATIONS)

    finding = _check(replace(facts, cut_first=cut_first))

    assert finding.fix.startswith(fix)
    assert ("samples are cut to their size before it" in finding.more) is bool(cut_first)


def test_it_is_silent_just_below_half_of_the_cpu():
    assert _check(waiting(sample={"augment": (3.2, 0.0, 0.0)})) is None


def test_it_is_silent_where_samples_are_mostly_blocked_elsewhere():
    assert _check(waiting(sample={"augment": (4.0, 0.0, 0.0), "read": (0.3, 0.0, 12.0)})) is None


def test_a_healthy_training_is_not_augmentation_bound():
    assert _check(made_up_facts(operations=OPERATIONS)) is None


def test_an_operation_that_takes_less_than_half_is_not_called_most_of_it():
    even = {"augment/ToTensor": 4.0, "augment/Normalize": 3.5, "decode/load": 2.0}

    finding = _check(waiting(60.0, sample={"augment": (9.9, 0.0, 0.0)}, operations=even))

    assert "ToTensor most of all (4.00 ms)" in finding.message


def test_what_a_container_calls_itself_may_take_more_than_any_operation():
    own = {"augment/Compose": 4.5, "augment/ToTensor": 1.0, "decode/load": 2.0}

    finding = _check(waiting(60.0, sample={"augment": (9.9, 0.0, 0.0)}, operations=own))

    assert "ToTensor" not in finding.message
