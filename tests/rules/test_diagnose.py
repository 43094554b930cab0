"""The gate, the order, and what is never said together."""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting, without_workers
from rules.said import verdict

from feedline.analysis.explain import diagnose as diagnosing
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.order import in_order
from feedline.analysis.ledger.finding import KNOWN_CALL, SHARE, Evidence, Finding, Severity
from feedline.analysis.measure.model import Traffic
from feedline.analysis.rules import RULES

DECODING = {
    "decode": (30.0, 0.0, 0.0)
}  # 32.8 ms a sample: a batch takes 1.05 s, four workers make one every 262 ms
LARGE = {"decoded_pixels": 1_800_000.0, "output_pixels": 64.0 * 64.0}


def causes(facts):
    return [finding.rule_id for finding in diagnose(facts)]


def test_a_healthy_training_is_compute_bound_and_nothing_else():
    assert causes(made_up_facts()) == ["compute_bound"]


@pytest.mark.parametrize(("wait_ms", "spoken"), [(4.8, False), (5.4, True)])
def test_the_input_is_spoken_of_from_five_percent_of_the_step(wait_ms, spoken):
    facts = made_up_facts(
        waits={"starved": wait_ms}, stages={"transport": 0.0}, sample=DECODING, maker=LARGE
    )

    assert (causes(facts) != ["compute_bound"]) is spoken


def test_the_only_start_of_a_loader_does_not_pass_the_gate():
    assert causes(made_up_facts(stages={"epoch_start": 30.0})) == ["compute_bound"]


def test_a_wait_that_no_rule_explains_is_said_to_be_one():
    (finding,) = diagnose(waiting(60.0))

    assert (finding.rule_id, finding.severity) == ("input_bound_unexplained", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60.4e-3)


def test_an_unexplained_wait_below_a_fifth_of_the_step_is_low():
    assert diagnose(waiting(12.0))[0].severity is Severity.LOW


def test_information_does_not_explain_a_wait():
    cheap = {"decode": (0.1, 0.0, 0.0), "read": (0.0, 0.0, 0.0), "dataset": (8.0, 0.0, 0.0)}

    assert causes(waiting(60.0, sample=cheap, maker=LARGE)) == [
        "input_bound_unexplained",
        "oversize_images",
    ]


def test_without_a_loader_nothing_is_claimed():
    facts = replace(made_up_facts(), loader=None)

    assert causes(facts) == ["input_not_seen"]
    assert "unknown" in verdict(diagnose(facts), facts)


def test_no_workers_come_first_while_cpus_are_free():
    facts = without_workers(sample=DECODING, maker=LARGE)

    assert causes(facts) == ["too_few_workers", "oversize_images", "decode_bound"]


def test_more_workers_are_not_advised_where_the_cpus_are_full():
    full = waiting(160.0, sample=DECODING, maker=LARGE, used_cpus=7.9)

    assert causes(full) == ["oversize_images", "decode_bound", "cpu_saturated"]


def test_what_takes_the_cpu_goes_before_that_it_is_full():
    assert causes(waiting(160.0, sample={"augment": (30.0, 0.0, 0.0)}, used_cpus=7.9)) == [
        "augmentation_bound",
        "cpu_saturated",
    ]


def test_small_files_go_before_the_cpus_that_reading_them_fills():
    small = Traffic(
        read_chars=24 * 4400.0, read_calls=72.0, disk_bytes=24 * 4096.0, major_faults=0.0
    )

    found = causes(waiting(160.0, sample={"read": (12.0, 5.0, 17.0)}, traffic=small, used_cpus=7.9))

    assert found.index("small_files") < found.index("cpu_saturated")


def test_a_detail_does_not_go_before_the_cause_that_it_is_a_part_of():
    floats = {"flags": ["float32", "shared"], "batch_bytes": 4 * 32 * 3 * 224 * 224}
    blur = {"augment/GaussianBlur": 24.0, "augment/ToTensor": 5.0}

    assert causes(
        waiting(
            160.0,
            sample={"augment": (30.0, 0.0, 0.0)},
            operations=blur,
            loader=floats,
            used_cpus=7.9,
        )
    )[:2] == [
        "augmentation_bound",
        "cpu_saturated",
    ]


def test_at_most_three_findings_ask_for_a_change():
    facts = waiting(160.0, sample=DECODING, maker=LARGE, used_cpus=7.9, process_cpu_s=100e-3)

    assert causes(facts) == [
        "oversize_images",
        "decode_bound",
        "cpu_saturated",
    ]  # thread_oversubscription is the fourth


ROWS = {
    "sample/decode/cpu": 0.6,
    "sample/augment/cpu": 0.3,
    "sample/decode/run_queue": 0.1,
    "sample/read/blocked": 0.4,
}


def ordered(*findings, rows=ROWS):
    return [finding.rule_id for finding in in_order(findings, rows, 10.0)]


def test_findings_are_ranked_by_severity_then_cost():
    made = [
        Finding("a", Severity.LOW, "", cost_s=9.0),
        Finding("b", Severity.HIGH, "", cost_s=1.0),
        Finding("c", Severity.HIGH, "", cost_s=2.0),
    ]

    assert ordered(*made) == ["c", "b", "a"]


@pytest.mark.parametrize(("cost_s", "first"), [(1.4, "decode_bound"), (1.3, "cpu_saturated")])
def test_a_part_goes_before_its_whole_only_if_it_wins_a_third(cost_s, first):
    whole, part = (
        Finding("cpu_saturated", Severity.HIGH, "", cost_s=4.0),
        Finding("decode_bound", Severity.HIGH, "", cost_s=cost_s),
    )

    assert ordered(whole, part)[0] == first


@pytest.mark.parametrize("call", ["", "json"], ids=["their own code", "a known call"])
def test_workers_that_have_nothing_to_do_go_before_what_the_others_work_on(call):
    rows = {"wait/starved": 0.5, "sample/dataset/user/parsed": 0.01}
    known = [Evidence(KNOWN_CALL, "json.loads", 0.9, SHARE, call)] if call else []
    work = Finding("user_code", Severity.HIGH, "", cost_s=5.0, evidence=known)
    much, little = (
        Finding("workers_without_data", Severity.HIGH, "", cost_s=cost_s) for cost_s in (2.0, 1.0)
    )

    assert ordered(work, much, rows=rows)[0] == "workers_without_data"
    assert ordered(work, little, rows=rows)[0] == "user_code"  # it is less than a third


@pytest.mark.parametrize(
    ("wait", "first"), [("wait/starved", "cold_storage"), ("wait/in_transit", "too_few_workers")]
)
def test_what_samples_wait_for_goes_before_the_workers_that_make_them(wait, first):
    rows = {wait: 0.5, "transport": 0.1, "sample/read/blocked": 0.01}
    workers, disk = (
        Finding(name, Severity.HIGH, "", cost_s=cost_s, claims=claims)
        for name, cost_s, claims in (
            ("too_few_workers", 4.0, [wait]),
            ("cold_storage", 3.0, ["sample/read/blocked"]),
        )
    )

    assert ordered(workers, disk, rows=rows)[0] == first


def test_that_holds_for_batches_that_workers_cannot_hand_over():
    facts = waiting(
        60.0,
        waits={"starved": 0.0, "handover": 60.0},
        sample={"read": (0.3, 0.0, 30.0)},
        traffic=Traffic(read_chars=0.0, read_calls=0.0, disk_bytes=100e3, major_faults=25.0),
        maker={"blocked_by": {"page fault": 1.0}, "blocked_looks": 50},
    )

    assert causes(facts)[:2] == ["cold_storage", "too_few_workers"]


def test_what_lies_in_other_rows_is_no_part():
    whole, other = (
        Finding("cpu_saturated", Severity.HIGH, "", cost_s=4.0),
        Finding("blocked", Severity.HIGH, "", cost_s=3.0),
    )

    assert ordered(whole, other) == ["cpu_saturated", "blocked"]


def test_no_finding_stands_above_one_that_is_graver():
    whole, part = (
        Finding("cpu_saturated", Severity.HIGH, "", cost_s=4.0),
        Finding("decode_bound", Severity.LOW, "", cost_s=1.4),
    )

    assert ordered(part, whole) == ["cpu_saturated", "decode_bound"]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            made_up_facts(),
            "Not input-bound: backward takes 59 % of each step, the input 0.9 %, so the "
            "input needs no change.",
        ),
        (
            without_workers(),
            "Input-bound: Input takes 61 % of each step. The main process makes every "
            "batch itself, which takes 154 ms of each 254 ms step. num_workers=2",
        ),
        (
            waiting(60.0),
            "Input-bound: Input takes 38 % of each step. What makes the input slow is unknown: "
            "its largest part is making batches (60.0 ms per step). Look at the stages of a "
            "sample in the report.",
        ),
    ],
)
def test_the_verdict_says_the_limit_its_cause_and_the_fix(facts, sentence):
    assert verdict(diagnose(facts), facts) == sentence


def check(rule_id, severity=Severity.HIGH):
    return Finding(rule_id, severity, f"{rule_id} is there")


def test_ranks_that_see_the_same_data_hear_it_before_anything_slow():
    facts = without_workers(sample=DECODING, maker=LARGE)
    findings = diagnose(
        facts,
        [
            check("whole_data_on_every_rank"),
            check("same_data"),
            check("missing_set_epoch", Severity.LOW),
        ],
    )

    assert [one.rule_id for one in findings] == ["same_data", *causes(facts)][: len(findings)]
    assert verdict(findings, facts) == "Misconfigured: same_data is there."


def test_mistakes_count_among_the_three_findings():
    found = diagnose(
        waiting(60.0), [check("sum_not_mean"), check("not_finite"), check("schedule_in_steps")]
    )

    assert [one.rule_id for one in found] == [
        "sum_not_mean",
        "not_finite",
        "input_bound_unexplained",
    ]


def test_a_schedule_of_another_length_is_told_and_is_not_the_verdict():
    facts = made_up_facts()
    findings = diagnose(facts, [check("schedule_in_steps")])

    assert [one.rule_id for one in findings] == ["schedule_in_steps", "compute_bound"]
    assert verdict(findings, facts) == verdict(diagnose(facts), facts)


def test_a_lost_training_is_called_lost():
    facts = made_up_facts()

    assert (
        verdict(diagnose(facts, [check("not_finite")]), facts)
        == "Training diverged: not_finite is there."
    )


def test_no_two_rules_have_one_cause():
    assert len({rule.rule_id for rule in RULES}) == len(RULES)


def test_the_order_of_the_registry_decides_nothing(monkeypatch):
    """Whatever the rules are asked in, the same findings are told in the same order."""
    cases = [
        waiting(160.0, sample=DECODING, maker=LARGE, used_cpus=7.9),
        without_workers(sample=DECODING, maker=LARGE),
        waiting(60.0),
    ]
    before = [causes(run) for run in cases]

    for name in ("INPUT", "LOOP", "MACHINE", "CROSS_RANK"):
        monkeypatch.setattr(diagnosing, name, getattr(diagnosing, name)[::-1])

    assert [causes(run) for run in cases] == before
