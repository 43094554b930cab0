from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from text.breath import said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.rules.input.input_bound_unexplained import _BY_WHOM, check


def test_it_names_the_stage_that_takes_most_of_a_sample():
    finding = check(waiting(60.0))

    assert finding.message.endswith("making batches (60.0 ms per step)")
    assert finding.more == ["the largest stage of a sample is decode (42 % of its time)"]


def test_it_names_the_programs_own_function_where_that_takes_most_of_a_sample():
    slow = {"dataset": (9.0, 0.0, 0.0)}
    code = {"sample_code": "Rows.__getitem__ (train.py:18)"}
    finding = check(waiting(60.0, sample=slow, settings=code))

    assert finding.place == "train.py:18"
    assert finding.fix.startswith("Profile Rows.__getitem__ line by line: its own code takes ")
    assert finding.message.endswith("per step, most of its CPU time in Rows.__getitem__")
    assert check(waiting(60.0, settings=code)).place == ""  # decoding takes most
    assert check(waiting(60.0, sample=slow)).place == ""


def test_it_names_a_slow_sampler():
    assert (
        "its largest part is the sampler (30.0 ms per step)"
        in check(made_up_facts(stages={"sampler": 30.0})).message
    )


def test_it_names_starts_of_epochs_that_no_setting_spares():
    facts = made_up_facts(
        stages={"epoch_start": 30.0}, epochs=10, settings={"persistent_workers": True}
    )

    assert "starting later epochs" in check(facts).message


def test_it_names_waiting_for_a_cpu_where_nobody_sampled_who_had_it():
    facts = replace(waiting(sample={"decode": (2.0, 4.8, 0.0)}, process_cpu_s=2e-3), cpus=None)
    told = diagnose(facts)[0]

    assert told.rule_id == "input_bound_unexplained"
    assert told.more == [
        "50 % of the time per sample is spent waiting for a CPU",
        "CPU use by other programs was not sampled",
    ]
    assert [told.fix, *told.fix_more] == _BY_WHOM


def test_it_names_a_main_thread_that_waits_for_a_cpu():
    facts = replace(made_up_facts(stages={"sampler": 30.0}, main_runqueue_share=0.3), cpus=None)

    assert check(facts).more == [
        "the main thread waits for a CPU during 30 % of the step",
        "CPU use by other programs was not sampled",
    ]


def test_it_names_cpus_that_other_code_of_the_training_fills():
    few = {
        "read": (0.1, 0.3, 0.0),
        "decode": (0.3, 1.0, 0.0),
        "augment": (0.2, 0.5, 0.0),
        "dataset": (0.1, 0.1, 0.0),
    }
    (found,) = diagnose(waiting(60.0, used_cpus=7.9, sample=few))

    assert found.rule_id == "input_bound_unexplained"
    assert (
        "of the time per sample is spent waiting for a CPU\nthis training uses 7.90 of 8 CPUs\nno "
        "CPU is free" in said(found)
    )
    assert found.fix.startswith("Find what else in this training uses the CPUs")


@pytest.mark.parametrize(
    "facts", [waiting(sample={"decode": (2.0, 4.8, 0.0)}), replace(waiting(), cpus=None)]
)
def test_it_does_not_speak_of_cpus_that_were_sampled_or_that_nothing_waits_for(facts):
    assert "not sampled" not in check(facts).message


def test_passes_of_a_library_that_start_slowly_are_not_late_batches():
    library = {"library": "torchdata.nodes", "num_workers": None}
    slow_start = check(made_up_facts(stages={"epoch_start": 60.0}, epochs=10, settings=library))
    late = check(waiting(60.0, settings=library))

    assert slow_start.message == (
        "passes of torchdata.nodes start slowly: until their first batch, 60.0 ms per step"
    )
    assert slow_start.fix.startswith("Let one pass be longer")
    assert "hands over batches too late" in late.message
