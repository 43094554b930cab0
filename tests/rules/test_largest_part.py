"""What the verdict must be about: the largest part of the step."""

from dataclasses import replace

import pytest
from rules.made_up import SAME, made_up_facts, waiting
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.model import Certainty, Updated
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.analysis.rules.loop import evaluation_time

BORDERLINE = {"waits": {"starved": 4.5}, "certainty": Certainty(60, 0.0, 0.08)}


def said(facts: RuleInputs) -> str:
    return verdict(diagnose(facts), facts)


def with_ledger(facts: RuleInputs, stage: str, steps: float) -> RuleInputs:
    """The same, whose stage lies in this share of the steps."""
    row = LedgerRow(stage, facts.step.stages[stage], steps=steps, trend=1.0)
    return replace(facts, ledger=Ledger(LedgerTable("step", facts.step.mean_s, [row]), None))


def test_compiling_that_takes_84_percent_is_the_verdict_and_not_an_input_of_one():
    assert "compil" in said(
        with_ledger(made_up_facts(stages={"compile": 550.0}, **BORDERLINE), "compile", 0.5)
    )


def test_an_optimizer_that_takes_60_percent_is_the_verdict_and_not_the_loss_beside_it():
    facts = made_up_facts(
        stages={"optimizer": 180.0, "other": 26.0},
        updated=Updated("AdamW", 2000, 8000, fused=False),
    )
    loss = OwnFunction(
        "line 20 (train.py)", 0.024, 0.022, 0.026, "cross_entropy (torch…/functional.py:3472)"
    )

    assert "the optimizer: AdamW.step()" in said(
        replace(facts, step=replace(facts.step, own_code=OwnCode(0.026, 200, [loss])))
    )


def test_checkpoints_that_take_12_percent_are_in_the_verdict():
    assert "checkpoint" in said(
        with_ledger(made_up_facts(stages={"checkpoint": 14.0}), "checkpoint", 0.2)
    )


@pytest.mark.parametrize("queued", [0.0, 0.05])
def test_a_wait_for_data_of_87_percent_is_told_beside_cpu_contention_that_costs_little(queued):
    sample, mine = (
        {"dataset": (15.0, 2.0, 0.0)},
        {"used_cpus": 1.1, "others": 0.9, "effective_cpus": 2.0, "main_runqueue_share": queued},
    )
    facts = waiting(
        700.0,
        sample=sample,
        settings={"num_workers": 2},
        maker={"processes": 2, "busy_share": 0.97},
        **mine,
    )

    assert "Input takes" in said(facts)


def test_workers_that_yield_the_same_samples_come_before_what_makes_them_slow():
    """A mistake without seconds of its own: everything else is said of a training that repeats its
    samples.
    """
    facts = waiting(
        260.0,
        sample={"dataset": (40.0, 0.0, 0.0)},
        settings={"map_style": False},
        same_samples=SAME,
    )

    assert "the same" in said(facts)


def test_evaluation_is_weighed_against_all_steps_also_those_that_the_mean_leaves_out():
    """One report tells one time of all steps: that of the table of the whole run."""
    facts = made_up_facts()
    facts = replace(facts, step=replace(facts.step, evaluation_s=6.0))
    run = LedgerTable("run", 20.0, [LedgerRow("steps/forward", 9.0), LedgerRow("steps", 1.0)])
    known = replace(facts, ledger=Ledger(LedgerTable("step", facts.step.mean_s, []), run))

    finding = evaluation_time._check(known)

    assert {one.id: one.value for one in finding.evidence}["steps_s"] == 10.0
    assert "take 38 % of the time" in finding.message
    assert finding.severity.value == "info"


def test_workers_that_repeat_each_other_in_groups_are_not_said_to_be_all_the_same():
    facts = waiting(
        260.0,
        sample={"dataset": (40.0, 0.0, 0.0)},
        settings={"map_style": False},
        same_samples=replace(SAME, times=2),
    )

    assert "Groups of 2 workers deliver the same samples" in said(facts)
    assert "4 workers" not in said(facts)
    uneven = replace(facts, same_samples=replace(SAME, times=2, workers=5))
    assert "Groups of 2 or more workers deliver the same samples" in said(uneven)
