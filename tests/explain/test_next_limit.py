"""What a finding may give beside the next limit of the roofline."""

import re
from dataclasses import replace

import pytest
from explain.test_roofline import MS, cost, made, on_a_gpu, run
from hypothesis import given, settings
from hypothesis import strategies as st
from rules.made_up import made_up_facts

from feedline.analysis.explain.next_limit import _ABOVE, cap_at_next_limit, lifted_by, with_gains
from feedline.analysis.explain.predictions import Predictions
from feedline.analysis.ledger.finding import (
    KNOWN_CALL,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    PredictedRate,
    Severity,
)
from feedline.analysis.report import full_report
from feedline.analysis.rules import BY_ID

#: 100 samples/s: one worker needs 100 ms for a batch; two CPUs need 77 ms for everything (130
#: samples/s), and the step alone 60 (167).
RUN = run({"wait": 40, "forward": 60}, {"total": cost(10, 8)}, processes=1, cpus=2, cpu_ms=154)


MORE = Change(settings={"num_workers": 8})
BOUND = "(upper bound, not a prediction)"
ESTIMATE = "without this cost (an estimate from its share of the time)"


def finding(rule_id, cost_ms, **fields):
    kind = {"cost_kind": CostKind.ESTIMATED} | fields
    return Finding(
        rule_id, Severity.of(cost_ms / 100), message="it is so", cost_s=cost_ms * MS, **kind
    )


def gain(found, report=RUN):
    (one,) = cap_at_next_limit([found], made(report), report.step.mean_s)
    (one,) = with_gains([one], report.throughput, report.step)
    return full_report._gain(one, replace(report, findings=[one], roofline=made(report)))


def test_more_workers_gain_no_more_than_the_cpus_can_make():
    assert (made(RUN).nearest, made(RUN).next) == ("workers", "all CPUs")
    assert ": about 130 samples/s" in made(RUN).message
    assert gain(finding("too_few_workers", 35)) == f"100 -> about 130 samples/s {ESTIMATE}"
    assert gain(finding("too_few_workers", 15)) == f"100 -> about 118 samples/s {ESTIMATE}"


def test_a_fix_that_makes_samples_cheaper_may_gain_more():
    estimate = ESTIMATE.replace("without this cost", "if decoding took no time")

    assert gain(finding("decode_bound", 35)) == f"100 -> about 154 samples/s {estimate}"
    assert gain(finding("decode_bound", 55)) == f"100 -> about 167 samples/s {estimate}"


def test_an_estimate_for_a_known_call_supposes_its_fix_and_not_that_it_took_no_time():
    call = Evidence(KNOWN_CALL, "a known call", 0.9, "share", "table_read")

    assert gain(finding("user_code", 15)).startswith("100 -> about 118 samples/s if this code took")
    assert (
        gain(finding("user_code", 15, evidence=[call])) == f"100 -> about 118 samples/s {ESTIMATE}"
    )


def test_on_full_cpus_a_cheaper_sample_leaves_some_to_the_step_as_well():
    """Else a finding that explains the full CPUs would stand behind the one that only says that
    they are.
    """
    decoding, full = finding("decode_bound", 55), finding("cpu_saturated", 55)

    assert [
        one.cost_s for one in cap_at_next_limit([decoding, full], made(RUN), RUN.step.mean_s)
    ] == [
        decoding.cost_s,
        full.cost_s,
    ]
    assert cap_at_next_limit([decoding], made(RUN), RUN.step.mean_s)[0].cost_s < decoding.cost_s


def test_no_fix_of_the_input_gains_more_than_the_gpu_can_do():
    """The host waits for batches while the GPU is still at work for earlier steps."""
    assert (
        gain(finding("decode_bound", 35), on_a_gpu(RUN, 90))
        == f"100 -> at most 111 samples/s {BOUND}"
    )
    assert (
        gain(finding("epoch_restart", 35), on_a_gpu(RUN, 90))
        == f"100 -> at most 111 samples/s {BOUND}"
    )


def test_a_gpu_that_works_all_the_time_leaves_nothing_to_gain():
    (one,) = cap_at_next_limit(
        [finding("decode_bound", 35)], made(on_a_gpu(RUN, 100)), RUN.step.mean_s
    )

    assert (one.cost_s, one.severity) == (0.0, Severity.INFO)


def test_what_the_input_takes_is_told_as_it_was_measured():
    told = finding("input_bound_unexplained", 45)

    assert cap_at_next_limit([told], made(RUN), RUN.step.mean_s) == [told]


def test_the_limit_of_the_step_does_not_bind_a_fix_that_makes_receiving_shorter():
    """50 samples/s of a worker, and 56 of the step, most of which is receiving its batch."""
    receiving = run(
        {"wait": 20, "transport": 140, "forward": 40}, {"total": cost(20, 8)}, processes=1, cpus=8
    )

    assert (made(receiving).nearest, made(receiving).next) == ("workers", "step")
    assert (
        gain(finding("too_few_workers", 80), receiving)
        == f"50.0 -> about 55.6 samples/s {ESTIMATE}"
    )
    assert (
        gain(finding("custom_collate", 80), receiving) == f"50.0 -> about 83.3 samples/s {ESTIMATE}"
    )


def test_a_prediction_stays_as_it_is():
    told = finding(
        "late_rank", 35, cost_low_s=30 * MS, cost_high_s=40 * MS, cost_kind=CostKind.PREDICTED
    )

    assert gain(told) == "100 -> 154 samples/s (143 to 167)"


def test_where_the_next_limit_leaves_less_than_a_fifth_the_finding_is_no_grave_one():
    near = run({"wait": 40, "forward": 60}, {"total": cost(10, 8)}, processes=1, cpus=2, cpu_ms=180)
    found = cap_at_next_limit(
        [finding("too_few_workers", 35), finding("decode_bound", 30)], made(near), near.step.mean_s
    )

    assert [(one.rule_id, one.severity) for one in found] == [
        ("decode_bound", Severity.HIGH),
        ("too_few_workers", Severity.LOW),
    ]
    assert found[1].cost_s == pytest.approx(10 * MS)


def predicted(after, low, change=MORE, report=RUN, high=None):
    told = PredictedRate(100.0, after, low, high or 3 * after)
    return Predictions(made_up_facts(), 100.0, lambda change, interval: told, made(report)).of(
        change
    )


def test_a_prediction_and_its_interval_keep_to_the_limit_that_stays_or_are_refused():
    assert predicted(120.0, 100.0) == PredictedRate(
        100.0, 120.0, 100.0, pytest.approx(133.8, abs=0.1)
    )  # the limit, and what it is off by
    assert predicted(140.0, 125.0).after == pytest.approx(130, rel=0.01)
    assert predicted(160.0, 140.0) == _ABOVE


def test_without_its_interval_the_same_rate_is_predicted():
    made_up, limits = made_up_facts(), made(RUN)
    told = PredictedRate(100.0, 140.0, 125.0, 150.0)
    ask = Predictions(
        made_up,
        100.0,
        lambda change, interval: told if interval else PredictedRate(100.0, 140.0, 140.0, 140.0),
        limits,
    ).of

    assert ask(MORE, interval=False).after == ask(MORE).after == pytest.approx(130, rel=0.01)


def test_a_change_is_held_against_the_nearest_limit_where_it_stays():
    """Full CPUs allow 100 / 0.92 samples/s, whatever other programs leave them to the training:
    both suppose the same.
    """
    full = run({"wait": 40, "forward": 60}, {"total": cost(5, 8)}, processes=1, cpus=2, cpu_ms=184)
    beside = Change(settings={"num_workers": 2}, others=False, lifts=BY_ID["busy_neighbors"].lifts)

    assert made(full).nearest == "all CPUs"
    assert predicted(125.0, 105.0, beside, full).after == pytest.approx(100 / 0.92, rel=0.01)
    assert predicted(125.0, 105.0, MORE, full).after == pytest.approx(100 / 0.92, rel=0.01)
    assert predicted(125.0, 105.0, Change(cpus=8.0), full).after == 125.0


def test_what_a_change_lifts_is_that_of_the_rule_whose_fix_it_is():
    for rule_id in ("too_few_workers", "straggler_in_order"):
        assert lifted_by(MORE, 1, full=False) == BY_ID[rule_id].lifts
    assert (
        lifted_by(Change(settings={"num_workers": 0}), 1, full=False)
        == BY_ID["fewer_workers"].lifts
    )
    assert (
        lifted_by(Change(settings={"persistent_workers": True}), 1, full=False)
        == BY_ID["epoch_restart"].lifts
    )
    assert (
        lifted_by(Change(stages={"read": Factor(1.0, 0.0)}), 1, full=False)
        == BY_ID["blocked"].lifts
    )
    assert (
        lifted_by(Change(stages={"decode": Factor(0.5, 1.0)}), 1, full=False)
        == BY_ID["decode_bound"].lifts
    )


def test_less_to_compute_shortens_turns_of_making_and_computing_too():
    """On one CPU, without workers, all CPUs and these turns are the two nearest limits."""
    alone = run(
        {"decode": 30, "forward": 70}, {"total": cost(3, 3)}, processes=0, cpus=1, cpu_ms=101
    )

    assert (made(alone).nearest, made(alone).next) == ("all CPUs", "serialized")
    for rule_id in ("own_code", "float32_products", "gpu_waits", "exposed_communication"):
        (told,) = cap_at_next_limit([finding(rule_id, 50)], made(alone), alone.step.mean_s)
        assert (told.severity, told.cost_s) == (Severity.HIGH, pytest.approx(50 * MS)), rule_id
    for rule_id in ("optimizer_time", "padded_batches"):
        assert gain(finding(rule_id, 50), alone).startswith("100 -> about 200 samples/s"), rule_id


def test_a_shorter_step_is_held_to_what_its_workers_make():
    """They make 111 samples/s, and would not make more of them."""
    close = run({"wait": 4, "forward": 96}, {"total": cost(9, 8)}, processes=1, cpus=8)
    step, sample = ({name: Factor(0.4, 0.4)} for name in ("other", "decode"))

    assert lifted_by(Change(stages=step), 1, full=False) == {"step", "cores", "turns"}
    assert predicted(150.0, 105.0, Change(stages=step), close).after == pytest.approx(1 / 9e-3)
    assert "workers" in lifted_by(Change(stages={**step, **sample}), 1, full=False)


def test_what_is_no_longer_computed_or_handed_over_needs_no_cpu():
    """Two planted graphs that were compiled again were 2.3 and 3.3 times as fast without that; the
    limit of the CPUs held the estimate at 2.0.
    """
    for rule_id in ("recompilation", "garbage_collection", "periodic_stall", "checkpoint_time"):
        assert {"step", "cores"} <= BY_ID[rule_id].lifts
    assert gain(finding("recompilation", 60)).startswith("100 -> about 250 samples/s")
    without, fewer = (
        lifted_by(Change(settings={"num_workers": workers}), 2, full=False) for workers in (0, 1)
    )
    assert "cores" in without and "cores" not in fewer


def test_a_limit_that_is_far_above_the_run_is_rough_and_holds_no_prediction():
    """Samples and steps take less CPU time at a higher rate: three times the rate of such a limit
    was measured.
    """
    far = run({"wait": 90, "forward": 10}, {"total": cost(10, 1)}, processes=1, cpus=2, cpu_ms=20)
    told = finding("too_few_workers", 80, predicted=PredictedRate(100.0, 1200.0, 400.0, 2000.0))

    assert "about 1,000 samples/s" in made(far).message
    assert predicted(1200.0, 400.0, MORE, far, 2000.0) == told.predicted
    assert (
        gain(told, far)
        == "100 -> 1,200 samples/s (400 to 2,000); above the next limit (all CPUs), which is rough"
    )


def test_on_full_cpus_what_makes_samples_cheaper_may_save_more_than_the_wait():
    def first(rule_id, ms, *others, run=RUN):
        found = [finding(rule_id, ms), *(finding(other, 20) for other in others)]
        return next(
            one
            for one in cap_at_next_limit(found, made(run), run.step.mean_s)
            if one.rule_id == rule_id
        )

    decoding, workers = (
        first(rule_id, 20, "cpu_saturated") for rule_id in ("decode_bound", "too_few_workers")
    )
    alone, held = (
        first("decode_bound", 20),
        first("decode_bound", 35, "cpu_saturated", run=on_a_gpu(RUN, 90)),
    )

    assert [one.cost_kind.value for one in (decoding, workers, alone)] == [
        "or_more",
        "estimated",
        "estimated",
    ]
    assert (
        held.cost_s == pytest.approx(10 * MS) and held.cost_kind is CostKind.BOUND
    )  # the GPU does not become faster


some_ms = st.sampled_from([0.5, 4.0, 20.0, 60.0, 300.0])


@settings(deadline=None, max_examples=100)
@given(
    st.fixed_dictionaries(dict.fromkeys(("wait", "transport", "forward", "unattributed"), some_ms)),
    st.tuples(some_ms, some_ms),
    some_ms,
    st.sampled_from([None, 0.3, 0.95]),
    st.sampled_from(
        ["decode_bound", "too_few_workers", "cpu_saturated", "own_code", "exposed_communication"]
    ),
    st.sampled_from([0.05, 0.3, 0.9]),
)
def test_nothing_is_said_to_be_the_most_that_lies_below_what_the_gpu_allows(
    stages, sample, cpu_ms, gpu, rule_id, part
):
    """What a run reaches without a cause may be anything up to that: full CPUs and rare stalls
    lengthen all other times.
    """
    total = cost(sum(sample), sample[0])
    report = run(stages, {"total": total}, processes=1, cpus=2, cpu_ms=cpu_ms)
    report = report if gpu is None else on_a_gpu(report, gpu * sum(stages.values()))
    mean_ms = report.step.mean_s / MS
    told = replace(finding(rule_id, part * mean_ms), severity=Severity.of(part))
    limits, full = made(report), finding("cpu_saturated", 0.3 * mean_ms)

    for found in (
        cap_at_next_limit([told], limits, report.step.mean_s),
        cap_at_next_limit([told, full], limits, report.step.mean_s),
    ):
        shown = replace(report, findings=found, roofline=limits)
        for said in (limits.message, *(full_report._gain(one, shown) for one in found)):
            for rate in re.findall(r"at most ([\d,.]*\d)", said):
                assert (
                    gpu is not None
                    and float(rate.replace(",", ""))
                    >= 0.99 * report.throughput.batch_size / report.step.gpu_s
                )


def test_without_limits_findings_stay_as_they_are():
    told = [finding("too_few_workers", 35)]

    assert cap_at_next_limit(told, None, RUN.step.mean_s) == told


def test_fixes_together_above_the_next_limit_say_so_as_single_ones_do():
    rate = PredictedRate(100.0, 150.0, 140.0, 160.0)
    found = [
        replace(finding(rule_id, 30), predicted=rate)
        for rule_id in ("too_few_workers", "oversize_images")
    ]
    told = replace(RUN, findings=found, roofline=made(RUN), together=rate)

    assert full_report.together(told)[1].endswith(
        "100 -> 150 samples/s (140 to 160); above the next limit (all CPUs), which these fixes also "
        "raise"
    )
    assert full_report.together(replace(told, together=replace(rate, after=131.0)))[1].endswith(
        "(140 to 160)"
    )
