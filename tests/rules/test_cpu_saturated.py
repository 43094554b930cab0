from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from rules.said import verdict
from text.breath import advised
from user_code.made_stacks import FETCHING, process, stack, training

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view import cpus
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.rules.input import cpu_saturated, decode_bound
from feedline.analysis.rules.input.cpu_saturated import _check, _check_quota


def test_samples_that_queue_for_a_cpu_are_a_finding():
    finding = _check(
        waiting(sample={"decode": (2.0, 1.2, 0.0)}, used_cpus=6.2, process_cpu_s=25e-3)
    )

    assert (finding.rule_id, finding.severity) == ("cpu_saturated", Severity.HIGH)
    assert finding.evidence[0].value == pytest.approx(1.2 / 6.0)
    assert finding.message == "20 % of the time per sample is spent waiting for a CPU"
    assert finding.more == ["this training uses 6.20 of 8 CPUs", "1.80 CPUs are free"]
    assert "More workers" not in advised(finding)


def test_a_tenth_of_a_cpu_that_is_free_is_no_contradiction():
    finding = _check(
        waiting(sample={"decode": (2.0, 4.2, 0.0)}, used_cpus=1.817, effective_cpus=2.0)
    )

    assert finding.message.startswith("the CPUs are saturated: ")
    assert finding.more[-1] == "0.183 CPUs are free"


def test_the_line_that_the_fix_names_is_its_place():
    making = stack([*FETCHING, ("train.py", 20, "__getitem__"), ("train.py", 9, "parse")], 300)
    facts = replace(
        waiting(
            sample={"dataset": (40.0, 9.0, 0.0)},
            used_cpus=7.9,
            process_cpu_s=60e-3,
            settings={"sample_code": "Rows.__getitem__ (train.py:18)"},
        ),
        code=SampledCode.of([training(), process("worker", making)]),
    )
    finding = _check(facts)

    assert finding.fix.startswith("Make parse() faster: ") and finding.place == "train.py:9"
    unseen = _check(replace(facts, code=None))
    assert unseen.fix.startswith("Profile Rows.__getitem__ ") and unseen.place == "train.py:18"


def test_cheaper_samples_spare_no_more_than_their_share_of_the_cpu_time():
    """Twenty percent of the wait is for a CPU, but 200 samples/s of 7 ms are 1.4 of the 6.2 CPUs:
    something else fills them.
    """
    facts = waiting(sample={"decode": (2.0, 1.2, 0.0)}, used_cpus=6.2, process_cpu_s=7e-3)
    finding = _check(facts)
    figures = {one.id: one.value for one in finding.evidence}

    assert finding.cost_s == pytest.approx(facts.step.mean_s * figures["cpus_of_making"] / 6.2)
    assert figures["cpus_of_making"] == pytest.approx(1.4, rel=0.01)
    assert _check(replace(facts, process_cpu_s=None)) is None  # 0.96 of them


def test_where_the_use_of_the_training_was_not_sampled_making_samples_takes_a_part_of_the_cpus():
    """Five of eight CPUs make samples: what uses the others is not known."""
    facts = waiting(120.0, sample={"decode": (2.0, 1.2, 0.0)}, used_cpus=None, process_cpu_s=25e-3)
    finding = _check(facts)
    figures = {one.id: one.value for one in finding.evidence}

    assert figures["cpus_of_making"] < facts.effective_cpus
    assert finding.cost_s == pytest.approx(
        facts.step.mean_s * figures["cpus_of_making"] / facts.effective_cpus
    )


def test_samples_whose_cpu_time_is_unknown_are_not_said_to_fill_the_cpus():
    facts = waiting(used_cpus=7.9, process_cpu_s=None, maker={"per_sample": {}})

    assert cpus.saturated(facts) and cpus.making_share_of_training(facts) is None
    assert _check(facts) is None


def test_a_quota_is_what_the_fix_raises():
    held = waiting(used_cpus=0.5, effective_cpus=0.5)
    facts = replace(held, cpus=replace(held.cpus, quota=0.5, affinity=2.0))

    finding = _check_quota(facts)
    assert finding.fix == "Raise the CPU quota of the container or control group (now 0.5 CPUs)."
    assert "takes 42 % of a sample's CPU time" in finding.fix_more[0]
    assert _check(facts) is None and _check_quota(held) is None


def test_under_a_quota_samples_that_are_mostly_blocked_cost_their_share_of_the_wall_time():
    held = waiting(
        60.0,
        effective_cpus=2.0,
        used_cpus=1.95,
        sample={"decode": (9.0, 0.0, 0.0), "read": (0.2, 0.0, 14.0)},
    )
    facts = replace(held, cpus=replace(held.cpus, quota=2.0, affinity=8.0))

    assert cpus.throttled(facts) and not cpus.saturated(facts)
    assert cpus.cost_share(facts, "decode") == pytest.approx(0.35, abs=0.01)


def test_cpus_that_are_all_in_use_are_a_finding():
    assert (
        "this training uses 7.00 of 8 CPUs on average"
        in _check(waiting(used_cpus=7.0, process_cpu_s=25e-3)).message
    )


def test_the_making_of_samples_alone_can_show_it():
    assert _check(waiting(used_cpus=None, process_cpu_s=40e-3))  # 200 samples/s of 40 ms


@pytest.mark.parametrize("nearly", [{"sample": {"decode": (2.0, 0.8, 0.0)}}, {"used_cpus": 6.3}])
def test_it_is_silent_just_below_its_thresholds(nearly):
    assert _check(waiting(**nearly, process_cpu_s=25e-3)) is None


def test_samples_that_are_mostly_blocked_do_not_wait_for_the_cpus():
    assert _check(waiting(used_cpus=7.5, sample={"read": (0.3, 0.0, 6.0)})) is None


def test_a_full_machine_without_a_wait_is_no_finding():
    assert _check(made_up_facts(used_cpus=7.9)) is None


def test_cpus_that_other_programs_fill_are_not_the_trainings_to_spare():
    assert (
        _check(
            waiting(
                used_cpus=0.7, others=1.3, effective_cpus=2.0, sample={"decode": (2.0, 4.8, 0.0)}
            )
        )
        is None
    )


def test_who_has_the_cpus_is_unknown_where_that_was_not_sampled_and_samples_take_little_of_them():
    little, much = (
        waiting(sample={"decode": (2.0, 1.2, 0.0)}, process_cpu_s=cpu_s) for cpu_s in (2e-3, 25e-3)
    )  # of 200 samples/s

    assert _check(replace(little, cpus=None)) is None
    assert _check(replace(much, cpus=None))  # 5 of 8 CPUs


def test_what_a_larger_quota_gives_at_most_is_not_less_than_it_can_give():
    held = waiting(used_cpus=0.5, effective_cpus=0.5, sample={"decode": (2.0, 1.2, 0.0)})
    assert held.cpus is not None
    quota, machine = (
        replace(held, cpus=replace(held.cpus, quota=most, affinity=2.0)) for most in (0.5, None)
    )

    assert _check_quota(quota).cost_s == pytest.approx(held.step.mean_s * (1 - 0.5 / 2))
    assert _check_quota(quota).severity is _check(machine).severity
    assert _check(machine).cost_s < _check_quota(quota).cost_s


def test_more_cpus_than_processes_spare_nothing_unless_there_are_helper_threads():
    held = waiting(used_cpus=4.0, effective_cpus=4.0)
    large = replace(
        held, cpus=replace(held.cpus, quota=4.0, affinity=64.0)
    )  # 4 workers and the main process
    helped = replace(large, process_cpu_s=20e-3)

    assert cpu_saturated._beyond_quota_s(large) == pytest.approx(large.step.mean_s * (1 - 4 / 5))
    assert cpu_saturated._beyond_quota_s(helped) == pytest.approx(large.step.mean_s * (1 - 4 / 64))


def test_a_quota_of_all_cpus_stops_nothing():
    held = waiting(used_cpus=4.0, effective_cpus=4.0)

    assert not cpus.throttled(replace(held, cpus=replace(held.cpus, quota=4.0, affinity=4.0)))


def test_the_verdict_names_the_quota_that_stops_a_training_not_its_input():
    held = waiting(used_cpus=0.5, effective_cpus=0.5, sample={"decode": (8.4, 0.0, 0.0)})
    facts = replace(held, cpus=replace(held.cpus, quota=0.5, affinity=2.0))
    decoding, quota = decode_bound._check(facts), _check_quota(facts)

    assert verdict([decoding], facts).startswith("CPU-bound: The quota of 0.5 CPUs is used up.")
    assert "Input takes" not in verdict([quota], facts)
    assert verdict([decoding], held).startswith("Input-bound: Input takes")


def test_an_input_that_takes_less_than_computing_is_a_part_of_what_binds_a_run():
    facts = waiting(100.0, sample={"decode": (8.4, 0.0, 0.0)})
    longer = {**facts.step.stages, "backward": 2 * facts.wait_share * facts.step.mean_s}
    finding = decode_bound._check(facts)

    assert verdict([finding], facts).startswith("Input-bound")
    computing = replace(facts, step=replace(facts.step, stages=longer))
    assert verdict([finding], computing).startswith("Partly input-bound")
