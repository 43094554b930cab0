"""What the fixes of findings are predicted to give, in which order they are told, and in which
words.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from explain.test_next_limit import RUN
from explain.test_roofline import made, on_a_gpu
from hypothesis import given, settings
from rules.any_facts import any_facts
from rules.made_up import MS, made_up_facts, waiting, without_workers

from feedline.analysis import rules
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.next_limit import with_gains
from feedline.analysis.explain.order import _better_first, findings_together, in_order
from feedline.analysis.explain.predictions import Predictions, joined
from feedline.analysis.explain.speed_trial import Trial
from feedline.analysis.explain.verdict import verdict
from feedline.analysis.ledger.facts import RankFacts, Waiting
from feedline.analysis.ledger.finding import (
    KNOWN_CALL,
    Blame,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    GainKind,
    PredictedRate,
    Refused,
    Severity,
)
from feedline.analysis.ledger.view.cpus import contended, crowded
from feedline.analysis.measure.model import Certainty, Cpus
from feedline.analysis.ranks.communication import Communication, LateRank, Prediction, RankParts
from feedline.analysis.report.full_report import _rates
from feedline.analysis.rules import BY_ID, Rule
from feedline.analysis.rules.cross_rank import late_rank
from feedline.analysis.rules.input import blocked, cpu_saturated, too_few_workers

DECODING = {"decode": (30.0, 0.0, 0.0)}
LARGE = {"decoded_pixels": 1_800_000.0, "output_pixels": 64.0 * 64.0}
NO_COMM = Communication([], None, "none", [], "", None, [], [], [])
LISTS = {
    "input": rules.INPUT,
    "machine": rules.MACHINE,
    "otherwise": rules.OTHERWISE,
    "ranks": rules.CROSS_RANK,
    "trace": rules.TRACE,
}
EVERY = [
    pytest.param(rule, id=f"{name}-{rule.rule_id}")
    for name, listed in LISTS.items()
    for rule in listed
]


def asked(change, interval=True):
    """A replay that knows nothing but how many workers there are, and what decoding takes."""
    workers = max(1, int(change.settings.get("num_workers", 1)))
    making = 2.0 * change.stages.get("decode", Factor()).cpu + 1.0
    rate = 100.0 / max(making / workers, 1.0)
    return PredictedRate(100.0 / 3.0, rate, 0.9 * rate, 1.1 * rate)


def predictions(facts, replay=asked, rate=64.0):
    return Predictions(facts, rate, replay)


def finding(rule_id, cost_ms=50.0, severity=Severity.HIGH, after=None, low=None):
    told = (
        None
        if after is None
        else PredictedRate(100.0, after, after * 0.95 if low is None else low, after * 1.05)
    )
    return Finding(
        rule_id,
        severity,
        f"{rule_id} is there",
        cost_s=cost_ms * MS,
        predicted=told,
        refused="" if told else "It is unknown.",
    )


def ordered(findings, mean_s=1.0):
    return in_order(findings, {}, mean_s)


@pytest.mark.parametrize("rule", EVERY)
def test_every_rule_says_what_its_fix_changes_or_why_that_is_unknown(rule):
    change = rule.change(
        ranks() if rule in rules.CROSS_RANK else made_up_facts()
    )  # those of traces look at no figure

    assert isinstance(change, (Change, Prediction, Refused))
    if isinstance(change, Refused):
        assert (
            change.reason.replace("_", "").isalpha()
            and change.message[0].isupper()
            and change.message.endswith(".")
        )


def test_a_rule_without_a_change_is_none():
    with pytest.raises(TypeError, match="change"):
        Rule("my_rule", lambda facts: None)


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_every_finding_of_a_recorded_run_is_either_predicted_or_refused(facts):
    for found in diagnose(facts, predicted=predictions(facts).attached):
        assert (found.predicted is None) == bool(found.refused), found.rule_id
        assert found.predicted is None or found.predicted.before == 64.0


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_what_a_finding_names_as_settings_is_what_is_predicted_where_the_verdict_says_so(facts):
    for found in diagnose(facts):
        change = BY_ID[found.rule_id].change(
            facts if BY_ID[found.rule_id] not in rules.CROSS_RANK else ranks()
        )
        if BY_ID[found.rule_id].by_settings and found.settings:
            assert change == Change(settings=found.settings)
        if isinstance(change, Change):
            assert change != Change(), f"the fix of {found.rule_id} changes nothing"
            assert all(
                0 <= factor.cpu <= 1 and 0 <= factor.off_cpu <= 1
                for factor in change.stages.values()
            )


def ranks(answers=()):
    late = LateRank(
        3, 90, 100, 100, 50 * MS, 48 * MS, "wait", 50 * MS, "decode", 45 * MS, True, False
    )
    waiting_for = Waiting(0, 45 * MS, 0.18, 0.25, RankParts(0.1, 0.0, 0.01, 0.0, 45 * MS, 0.0))
    return RankFacts(
        4,
        "the step",
        replace(NO_COMM, late=[late], what_if=list(answers)),
        [late],
        waiting_for,
        None,
    )


def test_what_the_replay_of_ranks_says_becomes_a_rate():
    told = Prediction("rank_on_time", 3.0, "rank 3 on time", 0.16, 0.15, 0.17, 0.04, "")

    assert late_rank._change(ranks([told])) == told
    assert predictions(made_up_facts(), rate=400.0).of(told) == PredictedRate(
        400.0,
        pytest.approx(500.0),
        pytest.approx(400 * 0.2 / 0.17),
        pytest.approx(400 * 0.2 / 0.15),
    )


def test_ranks_that_cannot_be_replayed_are_refused_with_the_reason():
    none = Prediction(
        "rank_on_time", 3.0, "rank 3 on time", None, None, None, 0.0, "the clocks differ by 3 ms"
    )

    why = (
        "How long the steps would be without the delay cannot be predicted: the clocks differ "
        "by 3 ms."
    )
    assert late_rank._change(ranks([none])).message == why


def test_rates_are_those_of_all_ranks():
    found = predictions(made_up_facts(), rate=1000.0).of(Change(settings={"num_workers": 3}))

    assert (found.before, found.after) == (1000.0, pytest.approx(3000.0))


def test_without_samples_per_second_nothing_is_predicted():
    assert (
        predictions(made_up_facts(), rate=None).of(Change(settings={"num_workers": 3})).reason
        == "no_rate"
    )


def test_the_replays_refusal_becomes_a_sentence():
    (found,) = predictions(
        without_workers(), lambda change, interval: Refused("few", "only 9 batches were recorded")
    ).attached([too_few_workers._check(without_workers())])

    assert (found.predicted, found.refused) == (None, "Only 9 batches were recorded.")


def test_a_fix_that_changes_nothing_in_the_replay_is_not_predicted_as_no_gain():
    (found,) = predictions(
        without_workers(), lambda change, interval: PredictedRate(50.0, 50.0, 50.0, 50.0)
    ).attached([too_few_workers._check(without_workers())])

    assert found.predicted is None and found.refused.startswith(
        "The replay of this run does not show the delay"
    )


def test_changes_are_joined_settings_merged_and_factors_multiplied():
    some = Change(
        settings={"num_workers": 4},
        stages={"decode": Factor(0.5, 0.8), "read": Factor(0.0, 0.0)},
        helper_threads=False,
    )
    more = Change(
        settings={"num_workers": 2, "in_order": False},
        stages={"decode": Factor(0.5, 0.5)},
        others=False,
        cpus=8.0,
    )

    assert joined([some, more]) == Change(
        settings={"num_workers": 4, "in_order": False},
        stages={"decode": Factor(0.25, 0.4), "read": Factor(0.0, 0.0)},
        helper_threads=False,
        others=False,
        cpus=8.0,
    )


def test_fixes_together_are_one_prediction_and_not_the_sum_of_two():
    facts = without_workers(sample=DECODING, maker=LARGE)
    told = predictions(facts, rate=100.0 / 3.0)
    found = diagnose(facts, predicted=told.attached)
    both = told.together(found)

    gains = [one.predicted.after - one.predicted.before for one in findings_together(found)]
    assert [one.rule_id for one in findings_together(found)] == [
        "too_few_workers",
        "oversize_images",
    ] and min(gains) > 0
    assert both.after == 100.0 < both.before + sum(gains)


def test_smaller_images_spare_their_page_faults_once():
    one = PredictedRate(10.0, 20.0, 15.0, 25.0)
    found = [
        Finding(rule_id, Severity.HIGH, "", predicted=one)
        for rule_id in ("page_faults", "oversize_images", "too_few_workers")
    ]

    assert [finding.rule_id for finding in findings_together(found)] == [
        "oversize_images",
        "too_few_workers",
    ]
    assert [finding.rule_id for finding in findings_together([found[0], found[2]])] == [
        "page_faults",
        "too_few_workers",
    ]


def test_of_one_predicted_fix_nothing_is_said_together():
    facts = without_workers()

    assert (
        predictions(facts).together(diagnose(facts, predicted=predictions(facts).attached)) is None
    )


@pytest.mark.parametrize(("after", "first"), [(140.0, "epoch_restart"), (145.0, "custom_collate")])
def test_a_change_of_code_must_spare_half_as_much_again_to_go_before_a_setting(after, first):
    """The setting spares a fifth of the step: 30 % are a change to 143 samples/s."""
    assert (
        ordered(
            [finding("epoch_restart", after=125.0), finding("custom_collate", after=after)],
            mean_s=0.1,
        )[0].rule_id
        == first
    )


def test_the_order_goes_by_what_is_predicted_and_not_by_the_bound():
    little, much = (
        finding("epoch_restart", 90.0, after=105.0),
        finding("straggler_in_order", 30.0, after=130.0),
    )

    assert ordered([little, much], mean_s=0.1) == [much, little]


@pytest.mark.parametrize(("cost_ms", "first"), [(59.0, "epoch_restart"), (61.0, "custom_collate")])
def test_an_estimate_counts_half_and_code_asks_for_half_as_much_again(cost_ms, first):
    assert (
        ordered(
            [finding("epoch_restart", after=125.0), finding("custom_collate", cost_ms)], mean_s=0.1
        )[0].rule_id
        == first
    )


@pytest.mark.parametrize(("cost_ms", "first"), [(59.0, "epoch_restart"), (61.0, "swapping")])
def test_what_needs_hardware_must_cost_three_times_what_a_setting_does(cost_ms, first):
    assert (
        ordered([finding("epoch_restart", 20.0), finding("swapping", cost_ms)])[0].rule_id == first
    )


@pytest.mark.parametrize(
    ("low", "severity"), [(126.0, Severity.HIGH), (124.0, Severity.LOW), (101.0, Severity.LOW)]
)
def test_a_cause_whose_fix_surely_gives_a_fifth_of_the_step_is_grave(low, severity):
    """Whatever it takes itself: workers that start again also stop what they had begun."""

    def replay(change, interval=True):
        return PredictedRate(100.0, 150.0, low, 180.0)

    little = replace(too_few_workers._check(without_workers()), severity=Severity.LOW)
    (told,) = predictions(without_workers(), replay, rate=100.0).attached([little])

    assert told.severity is severity


@pytest.mark.parametrize(
    ("waits", "kind"), [(0.05, CostKind.ESTIMATED), (0.15, CostKind.CAUSE_ONLY)]
)
def test_what_workers_give_ranks_that_wait_for_each_other_is_not_estimated(waits, kind):
    """The cost is that of one rank, and which is late then is not replayed."""
    alone = without_workers()
    waits_s = waits * alone.step.mean_s
    facts = replace(alone, comm_parts={1: RankParts(0.1, 0.0, 0.0, 0.0, waits_s, 0.0)})

    def replay(change, interval=True):
        return Refused("several_ranks", "the replay covers one")

    found = replace(too_few_workers._check(alone), cost_kind=CostKind.ESTIMATED)
    (told,) = predictions(facts, replay).attached([found])

    assert told.predicted is None and told.cost_kind is kind


@pytest.mark.parametrize(("waits", "kind"), [(0.05, CostKind.AT_LEAST), (0.15, CostKind.ESTIMATED)])
def test_what_one_of_several_ranks_that_wait_would_save_is_not_the_least_of_all(waits, kind):
    alone = without_workers()
    parts = RankParts(0.1, 0.0, 0.0, 0.0, waits * alone.step.mean_s, 0.0)
    found = replace(finding("own_code"), cost_kind=CostKind.AT_LEAST)

    (told,) = predictions(replace(alone, comm_parts={1: parts})).attached([found])

    assert told.cost_kind is kind


def test_no_prediction_lifts_a_finding_above_a_graver_one():
    low, high = (
        finding("epoch_restart", severity=Severity.LOW, after=400.0),
        finding("decode_bound", 20.0),
    )

    assert ordered([low, high], mean_s=0.1) == [high, low]


def verdict_of(found, facts=None):
    facts = facts or without_workers()
    return verdict(with_gains([found], facts.throughput, facts.step), facts)


def test_the_verdict_says_which_setting_gives_what():
    facts = without_workers()
    (found, *_) = diagnose(facts, predicted=predictions(facts, rate=126.0).attached)

    told = verdict_of(found)
    assert (told.fix, told.gain.kind) == ("num_workers=2", GainKind.PREDICTED)
    assert _rates(told.gain) == "126 -> 252 samples/s (227 to 277)"


def test_the_verdict_says_what_another_fix_gives():
    told = verdict_of(finding("decode_bound", after=164.0))

    assert told.cause == "decode_bound is there."
    assert _rates(told.gain) == "100 -> 164 samples/s (156 to 172)"


def test_a_setting_that_changes_the_order_of_batches_is_set_only_if_that_may_be():
    said = "only if the order of batches may change"
    found = replace(
        finding("straggler_in_order", after=118.0), settings={"in_order": False}, condition=said
    )

    assert (verdict_of(found).fix, verdict_of(found).condition) == ("in_order=False", said)


def test_a_gain_is_called_an_estimate_only_where_nothing_is_predicted():
    estimated = replace(finding("decode_bound"), cost_kind=CostKind.ESTIMATED)

    assert verdict_of(estimated).gain.kind is GainKind.ABOUT
    assert verdict_of(finding("decode_bound", after=164.0)).gain.kind is GainKind.PREDICTED


def test_a_part_of_the_time_that_a_fix_saves_is_a_gain_of_at_least_so_much():
    part = replace(finding("anomaly_detection"), cost_kind=CostKind.AT_LEAST)

    assert verdict_of(part).gain.kind is GainKind.AT_LEAST
    on_full_cpus = replace(finding("decode_bound"), cost_kind=CostKind.OR_MORE)
    assert verdict_of(on_full_cpus).gain.kind is GainKind.ABOUT  # no decoder takes no time


#: A rule of whose fix only the removal of what it names can be replayed.
REMOVED = replace(
    BY_ID["user_code"],
    change=lambda _: Refused("replaced", "How long what replaces it takes is not known."),
    free=lambda _: Change(stages={"decode": Factor(0.0, 0.0)}),
)


def test_where_only_the_removal_of_a_call_can_be_replayed_the_gain_is_at_most_that():
    """How long what replaces it takes is unknown; an estimate would be the same as no time."""
    facts = without_workers()
    found = replace(finding("user_code", cost_ms=10.0), cost_kind=CostKind.ESTIMATED)

    with rules_of(user_code=REMOVED):
        (told,) = predictions(facts, rate=100.0).attached([found])
    (told,) = with_gains([told], facts.throughput, facts.step)

    assert told.predicted is None and told.gain.kind is GainKind.AT_MOST
    assert told.gain.after == told.at_most_per_s == pytest.approx(330.0)

    of_a_part = replace(found, cost_kind=CostKind.AT_LEAST)
    with rules_of(user_code=REMOVED):
        (told,) = predictions(facts, rate=100.0).attached([of_a_part])
    (told,) = with_gains([told], facts.throughput, facts.step)
    assert told.gain.kind is GainKind.AT_LEAST
    assert told.at_most_per_s is None  # the rest of its time was not measured


def test_no_prediction_of_a_fix_is_above_what_removing_it_all_gives():
    facts = without_workers()
    rule = replace(
        BY_ID["user_code"],
        change=lambda _: Change(stages={"decode": Factor(0.01, 0.01)}),
        free=lambda _: Change(stages={"decode": Factor(0.0, 0.0)}, cpus=2.0),
    )

    def replay(change, interval=True):
        return PredictedRate(100.0, 200.0, 150.0, 250.0 if change.cpus else 400.0)

    with rules_of(user_code=rule):
        (told,) = predictions(facts, replay, rate=100.0).attached([finding("user_code")])

    assert (told.predicted.high, told.at_most_per_s) == (250.0, 250.0)


def test_a_prediction_above_what_removing_it_all_gives_is_that():
    rule = replace(
        BY_ID["user_code"],
        change=lambda _: Change(stages={"decode": Factor(0.01, 0.01)}),
        free=lambda _: Change(stages={"decode": Factor(0.0, 0.0)}, cpus=2.0),
    )

    def replay(change, interval=True):
        return PredictedRate(100.0, 160.0, 140.0, 180.0 if change.cpus else 400.0)

    def beyond(change, interval=True):
        made = replay(change)
        return made if change.cpus else replace(made, after=300.0)

    with rules_of(user_code=rule):
        within, above = (
            predictions(without_workers(), one, rate=100.0).attached([finding("user_code")])[0]
            for one in (replay, beyond)
        )

    assert within.predicted == PredictedRate(100.0, 160.0, 140.0, 180.0)
    assert above.predicted == PredictedRate(100.0, 180.0, 140.0, 180.0)
    assert above.at_most_per_s == 180.0


@pytest.mark.parametrize(("claims", "decoding"), [("sample/decode", 0.5), ("sample/read", 0.25)])
def test_fixes_of_the_same_time_spare_it_once(claims, decoding):
    """Two fixes that each halve decoding quarter it only if they are of different parts of it."""
    facts = without_workers(sample={"decode": (30.0, 0.0, 0.0), "read": (10.0, 0.0, 0.0)})
    halved = {
        rule_id: replace(
            BY_ID[rule_id], change=lambda _: Change(stages={"decode": Factor(0.5, 0.5)})
        )
        for rule_id in ("user_code", "slow_for_its_bytes")
    }
    found = [
        replace(finding("slow_for_its_bytes", after=70.0), claims=["sample/decode"]),
        replace(finding("user_code", after=70.0), claims=[claims]),
    ]

    with rules_of(**halved):
        told = predictions(facts).together(found)

    assert told.after == pytest.approx(
        asked(Change(stages={"decode": Factor(decoding)})).after * 1.92
    )


@contextmanager
def rules_of(**changed):
    """These rules in place of their own, as predictions look them up."""
    before = {name: BY_ID[name] for name in changed}
    BY_ID.update(changed)
    try:
        yield
    finally:
        BY_ID.update(before)


def test_a_gain_that_may_be_none_is_called_so():
    told = verdict_of(finding("decode_bound", after=104.0, low=97.0))

    assert _rates(told.gain) == "100 -> 104 samples/s (97.0 to 109, perhaps no gain)"


def test_a_prediction_above_what_limits_the_run_then_is_taken_back_wherever_it_is_asked_for():
    facts = without_workers(sample=DECODING, maker=LARGE)
    told = predictions(facts, lambda change, interval: PredictedRate(100.0, 160.0, 155.0, 165.0))
    held = replace(told, limits=made(RUN))
    (kept, *_), (back, *_) = (
        diagnose(facts, predicted=told.attached),
        diagnose(facts, predicted=held.attached),
    )
    several = [finding("too_few_workers", after=70.0), finding("oversize_images", after=70.0)]
    why = (
        "The replay of this change is faster than a limit of this run allows, so it predicts "
        "nothing."
    )

    assert kept.rule_id == back.rule_id == "too_few_workers" and kept.predicted is not None
    assert (back.predicted, back.refused) == (None, why)
    assert held.of(Change(settings=kept.settings)).reason == "above_limit"
    assert (
        told.together(several) is not None
        and replace(held, limits=made(on_a_gpu(RUN, 90))).together(several) is None
    )


def test_a_recording_too_short_to_judge_predicts_nothing_of_whatever_is_asked():
    facts = waiting(60.0, certainty=Certainty(7, 0.35, 0.40))

    assert predictions(facts).of(Change(settings={"num_workers": 3})).reason == "too_short"


@pytest.mark.parametrize(("gain", "said"), [(0.8, True), (1.05, True), (1.3, False), (None, False)])
def test_more_workers_are_denied_only_where_none_are_predicted_to_be_faster(gain, said):
    """The interval is ten percent: five may be no gain."""

    def replay(change, interval=True):
        more = change.settings.get("num_workers", 4) > 4
        if more and gain is None:
            return Refused("lock", "Unknown.")
        rate = 50.0 * gain if more else 50.0
        return PredictedRate(50.0, rate, 0.9 * rate, 1.1 * rate)

    facts = waiting(used_cpus=7.5, process_cpu_s=25e-3)
    (full,) = [
        one
        for one in diagnose(facts, predicted=predictions(facts, replay).attached)
        if one.rule_id == "cpu_saturated"
    ]

    assert (cpu_saturated.RULE.without_gain_of_workers in full.fix_more) == said


def test_settings_that_were_tried_and_rejected_are_no_advice_and_the_outcome_is_said():
    facts = without_workers()
    (asked,) = [
        one for one in diagnose(facts, predicted=predictions(facts).attached) if one.settings
    ]
    change = ", ".join(f"{name}={value}" for name, value in asked.settings.items())
    trial = Trial(
        "2026-11-28T10:00:00+00:00",
        "one",
        change,
        "",
        "-7.8 % [-9.0 %, -6.6 %]",
        None,
        None,
        "reject",
    )
    after = replace(predictions(facts), rejected=[trial])
    (told,) = [
        one for one in diagnose(facts, predicted=after.attached) if one.rule_id == asked.rule_id
    ]

    assert (told.predicted, told.settings, told.severity, told.cost_s) == (
        None,
        {},
        Severity.INFO,
        0.0,
    )
    outcome = (
        f"{change} was tried by feedline verify on 2026-11-28 and rejected: measured -7.8 % "
        f"[-9.0 %, -6.6 %]."
    )
    assert told.fix == outcome and told.refused == f"{outcome} Look for another change."
    assert verdict([told], facts).fix != "num_workers=2"
    assert after.of(Change(settings=asked.settings)).reason == "rejected"


def test_what_costs_more_than_twice_as_much_goes_first():
    """Nothing of either is predicted, and one is not a part of the other: 150 ms of waiting for
    other programs, 381 of full CPUs.
    """
    less, more = finding("busy_neighbors", 150.0), finding("cpu_saturated", 381.0)

    assert ordered([less, more], mean_s=0.5) == [more, less]


def test_a_sleep_is_removed_as_far_as_it_is_one():
    maker = {"blocked_by": {"sleep": 0.75, "network": 0.25}, "blocked_looks": 60}
    change = blocked._change(waiting(60.0, sample={"dataset": (0.5, 0.0, 12.0)}, maker=maker))

    assert change.stages["dataset"] == Factor(1.0, 0.25) and not change.settings


BUSY = replace(
    without_workers(),
    cpus=Cpus(2.0, None, 2.0, own=1.1, others=0.9, free=0.0),
    main_queued_share=0.5,
)


def test_beside_other_programs_a_bound_leaves_out_what_stopping_them_gives():
    """What takes less of a CPU gets more of it for the rest: the limits of the run do not hold."""

    def replay(change, interval=True):
        times = (1.0 if change.others else 2.0) * (1.2 if change.stages else 1.0)
        wide = 1.25 if change.others else 1.5
        return PredictedRate(100.0, 100.0 * times, 90.0 * times, 100.0 * times * wide)

    with rules_of(user_code=REMOVED):
        alone, beside = (
            predictions(facts, replay, rate=100.0).attached([finding("user_code")])[0].at_most_per_s
            for facts in (without_workers(), BUSY)
        )

    assert (alone, beside) == (pytest.approx(150.0), pytest.approx(180.0))


def test_beside_other_programs_the_time_of_a_cause_is_no_bound():
    facts = without_workers()
    bound = replace(finding("optimizer_time", cost_ms=10.0), cost_kind=CostKind.BOUND)

    alone, beside = (
        with_gains([bound], facts.throughput, facts.step, others)[0].gain
        for others in (False, True)
    )

    assert (alone.kind, beside.kind) == (GainKind.AT_MOST, GainKind.UNKNOWN)
    assert alone.after is not None and beside.after is None  # nor is it about as much


@pytest.mark.parametrize(
    ("cpus", "beside_others"),
    [
        (BUSY.cpus, True),
        (replace(BUSY.cpus, free=1.0), False),
        (replace(BUSY.cpus, others=0.01), False),
        (None, False),
    ],
    ids=["full", "a CPU is free", "hardly any other", "not sampled"],
)
def test_cpus_are_contended_where_other_programs_leave_none_free(cpus, beside_others):
    assert contended(replace(BUSY, cpus=cpus)) is beside_others
    assert ("stop them first" in crowded(replace(BUSY, cpus=cpus))) is beside_others


@pytest.mark.parametrize(("after", "first"), [(451.0, "oversize_reads"), (180.0, "cold_storage")])
def test_a_fix_that_is_predicted_to_give_far_more_goes_before_a_setting(after, first):
    """More workers for a disk give at most 3.3 times; what reads less of it may give 15 times."""
    setting = Finding("cold_storage", Severity.HIGH, "", cost_s=0.7, cost_kind=CostKind.BOUND)
    code = Finding(
        "oversize_reads",
        Severity.HIGH,
        "",
        cost_s=0.6,
        predicted=PredictedRate(29.4, after, after * 0.8, after * 1.2),
    )

    rows = {"sample/read/blocked": 0.7, "sample/read/cpu": 0.1}
    assert in_order([setting, code], rows, 1.0)[0].rule_id == first


@pytest.mark.parametrize(("busy", "most"), [(1.0, 400.0), (0.8, 500.0)])
def test_more_workers_make_no_more_batches_than_their_number_allows(busy, most):
    """Of eight workers instead of two, 4.6 times as many batches were estimated."""
    facts = waiting(90.0)
    workers = (2, busy)
    pace = replace(facts.throughput, samples_per_s=100.0)
    found = Finding(
        "too_few_workers",
        Severity.HIGH,
        "",
        cost_s=0.89 * facts.step.mean_s,
        cost_kind=CostKind.ESTIMATED,
        settings={"num_workers": 8},
    )

    (told,) = with_gains([found], pace, facts.step, workers=workers)

    assert told.gain.after == pytest.approx(most)
    (other,) = with_gains([replace(found, settings={})], pace, facts.step, workers=workers)
    assert other.gain.after == pytest.approx(100.0 / 0.11)


@pytest.mark.parametrize(
    "first",
    [
        {"evidence": [Evidence(KNOWN_CALL, "a call that is known to be slow", 0.9, "1", "sleep")]},
        {"blame": Blame(1, "wait")},
        {"cost_kind": CostKind.AT_LEAST},
    ],
    ids=["a known call", "a late rank", "a lower bound"],
)
def test_what_may_give_more_than_its_cost_stays_first(first):
    waits = Finding("cold_storage", Severity.HIGH, "", cost_s=0.3, **first)
    code = Finding(
        "oversize_reads", Severity.HIGH, "", cost_s=0.6, predicted=PredictedRate(10, 90, 80, 99)
    )

    assert _better_first([waits, code], 1.0) == [waits, code]
    bounded = replace(waits, evidence=[], blame=None, cost_kind=CostKind.BOUND)
    assert _better_first([bounded, code], 1.0) == [code, bounded]
    assert _better_first([bounded, replace(code, settings={"num_workers": 8})], 1.0)[0] is bounded
