from dataclasses import replace

from rules.made_up import made_up_facts, waiting

from feedline.analysis.ledger.finding import Severity
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
