"""Gradients that no update uses, as a finding."""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts

from feedline.analysis.ledger.finding import CostKind
from feedline.analysis.measure.clues import UnusedGradients
from feedline.analysis.rules.loop.unused_gradients import _check


def given(share=0.5, backward_s=0.03, **more):
    facts = made_up_facts(**{"stages": {"copy": 0.0}, **more})
    return replace(facts, unused_gradients=UnusedGradients(190_000, share, backward_s, "gan.py:50"))


def test_they_are_told_with_the_line_of_the_backward_pass_and_no_gain_is_promised():
    facts = given()

    finding = _check(facts)

    assert finding.message == (
        "backward passes that take 30 % of the step compute gradients that no update uses"
    )
    assert finding.more[0].startswith("those of 190,000 parameters are cleared")
    assert finding.place == "gan.py:50" and "requires_grad_(False)" in finding.fix
    assert "detach" not in finding.fix  # of a critic's, in the generator's step, that ends training
    assert finding.cost_s == pytest.approx(0.03) and finding.cost_kind is CostKind.BOUND


def test_on_a_gpu_the_passes_take_what_it_computes_and_what_is_saved_is_not_known():
    facts = given(backward_s=1e-3, stages={"backward": 2.0})
    facts = replace(facts, step=replace(facts.step, gpu_stages={"backward": 0.03}))

    finding = _check(facts)

    assert finding.cost_s == pytest.approx(0.015) and finding.cost_kind is CostKind.CAUSE_ONLY


def test_they_cost_no_more_than_the_backward_passes_of_the_step():
    facts = given(backward_s=10.0)

    assert _check(facts).cost_s == facts.step.stages["backward"]


@pytest.mark.parametrize("facts", [given(share=0.1), given(backward_s=1e-4), made_up_facts()])
def test_of_few_parameters_or_in_little_time_nothing_is_told(facts):
    assert _check(facts) is None
