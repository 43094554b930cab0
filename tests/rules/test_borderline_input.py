"""Near the gate of 5 % the same finding is told on both sides of it."""

import pytest
from rules.made_up import made_up_facts, without_workers
from rules.said import verdict
from text.breath import said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.handover import receiving_s
from feedline.analysis.ledger.view.input_wait import steady_share
from feedline.analysis.measure.model import Certainty
from feedline.analysis.rules.input.borderline_input import check

AROUND = Certainty(40, 0.03, 0.08)
FIRST_STAGES = {"transport": 0.0}


def waits(ms, sure=AROUND, **changes):
    return made_up_facts(
        **{
            "waits": {"starved": ms},
            "stages": FIRST_STAGES,
            "ready_share": 0.3,
            "certainty": sure,
            **changes,
        }
    )


@pytest.mark.parametrize("ms", [4.6, 4.9, 5.6, 6.5])
def test_below_and_above_the_gate_the_first_finding_and_its_words_are_the_same_but_for_the_share(
    ms,
):
    facts = waits(ms)
    (finding,) = diagnose(facts)

    assert (finding.rule_id, finding.severity) == ("borderline_input", Severity.INFO)
    assert (
        "too close to 5 %" in finding.message
        and "the 95 % interval of that share is 3.0 to 8.0 %" in finding.more
    )
    assert finding.fix == "Look at the rest of the step first."
    assert verdict([finding], facts).startswith("The input takes")


@pytest.mark.parametrize(
    ("sure", "told"),
    [
        (None, False),
        (Certainty(40, 0.01, 0.049), False),
        (Certainty(40, 0.049, 0.051), True),
        (Certainty(40, 0.05, 0.06), False),
        (Certainty(40, 0.03, 0.099), True),
        (Certainty(40, 0.03, 0.1), False),  # then the verdict gives the interval
    ],
)
def test_it_is_told_where_the_interval_contains_the_gate_and_ends_near_it(sure, told):
    assert (check(waits(5.5, sure)) is not None) is told


def test_below_eight_steps_nothing_is_judged_near_the_gate_either():
    assert diagnose(waits(5.5, Certainty(7, 0.03, 0.08)))[0].rule_id == "too_short"


def test_without_a_loader_nothing_is_known_of_the_gate():
    facts = waits(5.5)

    assert check(type(facts)(**{**vars(facts), "loader": None, "workers": None})) is None


def test_other_programs_that_hold_the_cpus_are_named_before_it():
    facts = waits(5.5, used_cpus=0.7, others=1.6, effective_cpus=2.0, main_runqueue_share=0.3)

    assert [finding.rule_id for finding in diagnose(facts)] == [
        "busy_neighbors",
        "borderline_input",
    ]


def cheap_samples(share_of_gain, sure):
    """Without workers: what they would save at least is this share of the step."""
    rest = {"forward": 12.0, "backward": 15.0, "optimizer": 4.0, "other": 1.0, "copy": 0.0}
    facts = without_workers(
        stages=rest,
        sample={"read": (0, 0, 0), "decode": (0, 0, 0), "augment": (0, 0, 0), "collate": (0, 0, 0)},
    )
    receiving = receiving_s(facts).high
    making = (receiving + share_of_gain * 32e-3) / (1 - share_of_gain)
    sample = {"dataset": (making / 32 * 1e3, 0.0, 0.0)}
    none = dict.fromkeys(("read", "decode", "augment", "collate"), (0.0, 0.0, 0.0))
    facts = without_workers(stages=rest, sample=none | sample)
    share = steady_share(facts)
    return type(facts)(**{**vars(facts), "certainty": Certainty(40, share - sure, share + sure)})


@pytest.mark.parametrize("gain", [0.046, 0.049, 0.051, 0.056])
def test_a_gain_of_workers_that_may_be_below_the_gate_is_told_by_one_finding_on_both_sides_of_it(
    gain,
):
    first = diagnose(cheap_samples(gain, 0.008))[0]

    assert first.rule_id == "made_one_by_one" and "workers would save" in said(first)


@pytest.mark.parametrize(("gain", "sure"), [(0.051, 0.0), (0.07, 0.008), (0.3, 0.1)])
def test_workers_are_advised_where_they_save_more_than_the_gate_for_sure(gain, sure):
    assert diagnose(cheap_samples(gain, sure))[0].rule_id == "too_few_workers"
