"""Forwards nobody learns from, padding and denormal numbers: how they are weighed and told."""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts

from feedline.analysis.ledger.finding import Change, CostKind, Refused, Severity
from feedline.analysis.measure.clues import Denormal, DroppedForwards, Padding
from feedline.analysis.rules.loop import denormal_numbers, dropped_graphs, padded_batches

HOST = made_up_facts(stages={"copy": 0.0})


def dropping(seconds=0.02, unused=True):
    return replace(HOST, dropped=DroppedForwards(seconds, 9, "train.py:20", unused))


def test_a_forward_whose_result_is_unused_can_be_removed():
    finding = dropped_graphs._check(dropping())
    change = dropped_graphs._change(dropping())

    assert (finding.severity, finding.place) == (Severity.HIGH, "train.py:20")
    assert finding.cost_s == pytest.approx(0.02) and finding.cost_kind is CostKind.AT_LEAST
    assert isinstance(change, Change) and change.stages["forward"].cpu == pytest.approx(1 / 3)
    assert isinstance(dropped_graphs._free(dropping()), Refused)


def test_one_whose_result_may_be_needed_has_only_a_bound():
    facts = dropping(unused=False)
    finding = dropped_graphs._check(facts)

    assert finding.cost_kind is CostKind.BOUND and "torch.no_grad()" in finding.fix
    assert finding.cost_s == pytest.approx(0.02 / 3)  # most of a pass stays without its graph
    assert "leave the call out" not in finding.how_to_check  # it may choose an action
    assert isinstance(dropped_graphs._change(facts), Refused)
    assert dropped_graphs._free(facts).stages["forward"].cpu == pytest.approx(1 - 2 / 9)


def timed(facts, **gpu_ms):
    """The same on a GPU, which takes so long for these stages of a step."""
    gpu_stages = {name: ms / 1e3 for name, ms in gpu_ms.items()}
    return replace(facts, step=replace(facts.step, gpu_stages=gpu_stages))


def test_what_a_gpu_computes_counts_where_the_host_only_launches_it():
    """The host launches the pass in 1 of the 3 ms of forward, of which the GPU makes 60."""
    facts = timed(made_up_facts(stages={"forward": 3.0}), forward=60.0)
    facts = replace(facts, dropped=DroppedForwards(1e-3, 9, "train.py:20", unused=False))

    finding = dropped_graphs._check(facts)

    assert finding.cost_s == pytest.approx(0.02 / 3) and finding.cost_kind is CostKind.CAUSE_ONLY
    assert isinstance(dropped_graphs._free(facts), Refused)


def test_a_call_that_can_go_on_a_gpu_saves_the_hosts_time_at_least():
    finding = dropped_graphs._check(timed(dropping(), forward=60.0))

    assert finding.cost_s == pytest.approx(0.02) and finding.cost_kind is CostKind.AT_LEAST


def test_passes_take_no_more_than_forward_and_a_short_one_is_not_told_of():
    assert dropped_graphs._check(dropping(9.0)).cost_s == HOST.step.stages["forward"]
    assert dropped_graphs._check(dropping(0.003)) is None
    assert dropped_graphs._check(HOST) is None


@pytest.mark.parametrize(("needless", "told"), [(0.25, True), (0.24, False), (0.0, False)])
def test_padding_that_no_row_needs_costs_its_part_of_forward_and_backward(needless, told):
    facts = replace(HOST, padding=Padding(needless, 0.3, 9))
    finding = padded_batches._check(facts)

    assert (finding is not None) is told
    if finding:
        assert finding.cost_s == pytest.approx(needless * 90e-3)
        assert padded_batches._change(facts).stages["backward"].cpu == pytest.approx(1 - needless)


@pytest.mark.parametrize(("padded", "told"), [(0.58, True), (0.39, False)])
def test_rows_of_different_length_cost_at_most_what_fills_the_shorter_ones(padded, told):
    facts = replace(HOST, padding=Padding(0.0, padded, 9))
    finding = padded_batches._check(facts)

    assert (finding is not None) is told
    assert isinstance(padded_batches._change(facts), Refused)
    if finding:
        assert finding.cost_s == pytest.approx(padded * 90e-3)
        assert finding.cost_kind is CostKind.BOUND and "similar length" in finding.fix
        assert finding.severity is Severity.LOW  # texts in random order are no mistake


def test_on_a_gpu_what_less_padding_saves_is_not_known():
    facts = replace(made_up_facts(), padding=Padding(0.6, 0.7, 9))

    assert padded_batches._check(facts).cost_kind is CostKind.CAUSE_ONLY
    assert isinstance(padded_batches._change(facts), Refused)


def test_padding_that_a_gpu_computes_weighs_what_it_takes_there():
    launched = made_up_facts(stages={"forward": 1.0, "backward": 1.0, "other": 88.0})
    facts = replace(timed(launched, forward=20.0, backward=40.0), padding=Padding(0.6, 0.7, 9))

    assert padded_batches._check(facts).cost_s == pytest.approx(0.6 * 60e-3)


@pytest.mark.parametrize(
    ("facts", "longer", "told"),
    [
        (HOST, 0.4, True),
        (HOST, 0.04, False),
        (HOST, None, False),
        (made_up_facts(), 0.4, False),
    ],
    ids=["slower", "hardly slower", "no slower", "a GPU computes"],
)
def test_denormal_numbers_are_told_of_where_steps_got_slower_with_them(facts, longer, told):
    finding = denormal_numbers._check(replace(facts, denormal=Denormal(0.6, 20, 4, longer)))

    assert (finding is not None) is told
    if finding:
        assert finding.cost_s == pytest.approx(0.4 * facts.step.mean_s)
