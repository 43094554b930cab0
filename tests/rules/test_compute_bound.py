from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from user_code.made_stacks import BACKWARD, FORWARD, LIBRARIES, LOOP, TORCH, stack, training

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.rules.input.compute_bound import check


def test_a_step_that_hardly_waits_is_bound_by_its_own_work():
    finding = check(made_up_facts())

    assert (finding.rule_id, finding.severity) == ("compute_bound", Severity.INFO)
    assert finding.message == (
        "not input-bound: backward takes 59 % of each step, the input 0.9 %, so the input "
        "needs no change"
    )
    assert (finding.more, finding.fix) == ([], "")
    assert finding.cost_s == 0.0  # no change is advised, so nothing is to be saved


def test_the_only_start_of_the_loader_is_not_held_against_it():
    assert check(made_up_facts(stages={"epoch_start": 30.0}))


def test_a_step_that_waits_five_percent_is_not():
    assert check(waiting(5.0)) is None


def test_without_a_loader_nothing_is_said():
    facts = made_up_facts()

    assert check(type(facts)(**{**vars(facts), "loader": None})) is None


def test_an_optimizer_that_calls_a_closure_is_not_blamed_for_what_that_does():
    facts = made_up_facts(stages={"optimizer": 91.0})

    assert "optimizer takes 49 % of each step" in check(facts).message
    closing = check(replace(facts, closures=True)).message
    assert "optimizer with its closure takes 49 % of each step" in closing


CALL = [*LOOP[:-1], ("train.py", 71, "main"), *FORWARD]
NET = [*CALL, ("net.py", 12, "forward"), *FORWARD]
ATTENTION = [*NET, ("net.py", 31, "attention"), (TORCH + "functional.py", 1500, "einsum")]
RESNET = (LIBRARIES + "torchvision/models/resnet.py", 101, "ResNet.forward")


def told(*stacks, **given):
    """What is said where the loader's share is 0.9 %, in a run of a CPU unless another stage is given."""
    facts = made_up_facts(stages={"copy": 0.0} | given)
    return check(replace(facts, code=SampledCode.of([training(*stacks)])))


def test_the_line_of_the_program_that_takes_most_is_where_the_step_is_spent():
    finding = told(stack(ATTENTION, 200), stack(NET, 100))
    evidence = {(one.id, one.of): one.value for one in finding.evidence}

    assert finding.message == (
        "not input-bound: the input takes 0.9 % of each step, and 15 % is spent in attention() at "
        "net.py:31"
    )
    # half of the samples of forward, which takes 30 % of the step
    assert evidence["line_share", "net.py:31"] == pytest.approx(0.15, rel=0.01)
    assert 0.1 < evidence["line_share_end", "lower"] < evidence["line_share", "net.py:31"]
    assert (finding.fix, finding.place, finding.cost_s) == ("", "", 0.0)


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        ([*LOOP[:-1], ("train.py", 40, "<module>")], "at train.py:40"),
        ([*CALL, RESNET, *FORWARD], "in forward() at torchvision/models/resnet.py:101"),
        ([*CALL, ("net.py", 12, "forward"), *FORWARD, RESNET], "in forward() at net.py:12"),
    ],
    ids=["no function", "a library's model", "the program's model"],
)
def test_a_line_is_named_as_people_find_it(frames, where):
    facts = made_up_facts(stages={"copy": 0.0, "forward": 90.0, "other": 90.0})
    facts = replace(facts, code=SampledCode.of([training(stack(frames, 600))]))

    assert check(facts).message.endswith(f" % is spent {where}")


@pytest.mark.parametrize(
    ("frames", "samples", "copy"),
    [
        ([*LOOP[:-1], ("train.py", 72, "main"), *BACKWARD], 900, 0.0),
        (ATTENTION, 9, 0.0),
        (ATTENTION, 60, 0.0),
        (ATTENTION, 900, 2.0),
    ],
    ids=["what the stage is called by", "few samples", "not surely a tenth", "a GPU computes"],
)
def test_no_line_is_named_that_says_nothing(frames, samples, copy):
    finding = told(stack(frames, samples), copy=copy)

    assert "backward takes" in finding.message
    assert finding.message.endswith("so the input needs no change")
    assert not any(one.id.startswith("line_") for one in finding.evidence)
