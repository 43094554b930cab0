"""The verdict of a training that is watched is about what takes most of its time."""

from types import SimpleNamespace

import pytest

from feedline.analysis.explain.attached import (
    SampledProcesses,
    SampledShare,
    _explains,
    _verdict,
)
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.measure.code_places import OTHER as OWN
from feedline.analysis.measure.code_places import WAIT
from feedline.analysis.measure.code_tree import MAIN

MOVES = SimpleNamespace(stuck=False)
SAMPLES = SimpleNamespace(places={(MAIN, OWN): SimpleNamespace(weight=SimpleNamespace(number=999))})


def found(rule_id, share):
    evidence = [Evidence("function_share", "a function", share, SHARE)]
    return Finding(rule_id, Severity.HIGH, message=f"{rule_id} takes it", evidence=evidence)


@pytest.mark.parametrize(
    ("shares", "begins"),
    [
        ({WAIT: 0.36, OWN: 0.46, "forward": 0.1}, "Bound by the training loop: 46 %"),
        ({WAIT: 0.5, OWN: 0.3, "forward": 0.1}, "Input-bound: Input takes 50 %"),
        ({WAIT: 0.25, "checkpoint": 0.5, "forward": 0.1}, "Bound by checkpoint"),
        (
            {WAIT: 0.1, OWN: 0.1, "forward": 0.8},
            "Bound by the model: forward, backward and optimizer take 80 %",
        ),
    ],
)
def test_the_largest_of_input_loop_and_others_is_named(shares, begins):
    sampled = SampledProcesses({row: SampledShare(one, one, one) for row, one in shares.items()})

    limit, _ = _verdict(sampled, MOVES, [], SAMPLES)

    assert limit.startswith(begins)


def test_a_function_of_samples_explains_no_more_than_the_wait_for_them():
    assert _explains(found("user_code", 0.9), waits=0.36) == pytest.approx(0.324)
    assert _explains(found("own_code", 0.46), waits=0.36) == 0.46
