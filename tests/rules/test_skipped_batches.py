from dataclasses import replace

import pytest
from measure.made_up_records import MadeUp
from rules.made_up import waiting
from user_code.made_stacks import FETCHING, process, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.measure.clues import Skipped
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.steps import steps_of
from feedline.analysis.rules.input.skipped_batches import _check

MS = 1_000_000


def passes(skipped, batches=10, number=4, ahead=0):
    """Passes over a loader; what is taken ahead is trained on at the end."""
    run, at = MadeUp(), 0
    for epoch in range(number):
        for batch in range(batches + 1):
            if batch < batches:
                run.next(at, at + MS, batch=batch, epoch=epoch)
                trains = batch >= max(skipped[epoch % len(skipped)], ahead)
            else:
                run.next(at, at + MS, batch=batch, epoch=epoch, flags=1)
                trains = ahead > 0
            at += MS
            for _ in range((ahead if batch == batches else 1) if trains else 0):
                run.forward(at, at + MS).backward(at + MS, at + 2 * MS)
                run.update(at + 2 * MS, at + 3 * MS)
                at += 3 * MS
    return steps_of(run.process()).skipped


def test_batches_that_are_passed_over_in_each_pass_are_seen():
    assert passes([4]) == Skipped(4, 10)


@pytest.mark.parametrize(
    "given",
    [
        {"skipped": [0]},
        {"skipped": [2]},
        {"skipped": [4, 0, 0, 0]},
        {"skipped": [4], "number": 1},
        {"skipped": [0], "ahead": 4},
    ],
    ids=["none", "few", "in the first pass", "one pass", "taken ahead"],
)
def test_others_are_not(given):
    assert passes(**given) is None


def test_their_part_of_the_wait_is_their_cost():
    facts = waiting(60.0, skipped=Skipped(40, 60, "train.py:9"))

    finding = _check(facts)

    assert finding.cost_s == pytest.approx(facts.wait_share * facts.step.mean_s * 2 / 3)
    assert finding.place == "train.py:9"
    assert _check(waiting(60.0, skipped=Skipped(3, 600))) is None


def test_the_line_that_makes_samples_is_no_place_of_batches_that_are_skipped():
    making = stack([*FETCHING, ("train.py", 20, "__getitem__"), ("train.py", 9, "parse")], 300)
    facts = replace(
        waiting(60.0, sample={"decode": (8.4, 0.0, 0.0)}, skipped=Skipped(40, 60)),
        code=SampledCode.of([training(), process("worker", making)]),
    )

    places = {finding.rule_id: finding.place for finding in diagnose(facts)}

    assert places["decode_bound"] == "train.py:9"
    assert places["skipped_batches"] == ""
