import pytest
from rules.made_up import SAMPLE, made_up_facts, waiting, without_workers
from rules.said import verdict
from text.breath import advised, said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.workers_needed import needed
from feedline.analysis.rules.input.busy_neighbors import _NO_ROOM, _alone, _change, _check
from feedline.analysis.text.formatting import percent

CROWDED = {"used_cpus": 0.7, "others": 1.6, "effective_cpus": 2.0}


def test_other_programs_that_hold_the_cpus_are_named_with_what_they_cost():
    finding = _check(waiting(90.0, **CROWDED, sample={"decode": (2.0, 4.8, 0.0)}))

    assert (finding.rule_id, finding.severity) == ("busy_neighbors", Severity.HIGH)
    assert finding.message.endswith(
        "of each step is spent waiting for CPUs that other programs use"
    )
    assert finding.more[0].startswith("other programs use 1.60 of the 2 CPUs")
    assert finding.cost_s == pytest.approx(
        45e-3, rel=0.02
    )  # half of a wait of 90 ms, all of which 1.6 CPUs would end


def test_a_main_thread_that_waits_for_a_cpu_is_held_back_though_its_input_is_not():
    found = diagnose(made_up_facts(**CROWDED, main_runqueue_share=0.3))

    assert [finding.rule_id for finding in found] == ["busy_neighbors", "compute_bound"]
    assert verdict(found, made_up_facts(**CROWDED)).startswith(
        "CPU contention: At least 30 % of each step is spent waiting for CPUs"
    )


def test_the_time_that_it_speaks_of_is_the_time_that_can_be_saved():
    some = _check(
        waiting(others=0.4, sample={"decode": (2.0, 4.8, 0.0)})
    )  # half of what waits does so for them
    kept = _check(
        without_workers(effective_cpus=2.0, used_cpus=1.0, others=1.0, main_runqueue_share=0.1)
    )

    assert some.message.startswith(f"at least {percent(some.cost_s / 0.16)} of each step")
    assert (
        "they hold CPUs that more loader workers would use" in kept.more
        and " % " not in kept.message
    )


def test_what_would_wait_without_them_too_is_not_their_cost():
    alone = _check(waiting(others=0.4, sample={"decode": (2.0, 4.8, 0.0)}))  # 0.8 CPUs are lacking

    assert alone.cost_s == pytest.approx(15e-3, rel=0.02)


@pytest.mark.parametrize(
    "facts", [waiting(others=1.6), waiting(**{**CROWDED, "others": 0.05}), waiting(used_cpus=None)]
)
def test_programs_that_hold_nobody_up_are_not_spoken_of(facts):
    assert _check(facts) is None


def test_cpus_that_workers_would_need_are_what_a_neighbor_takes_from_a_training_without_workers():
    facts = {"effective_cpus": 2.0, "used_cpus": 1.0}
    beside = diagnose(without_workers(**facts, others=1.0))[0]

    assert diagnose(without_workers(**facts))[0].rule_id == "too_few_workers"
    assert beside.rule_id == "busy_neighbors" and _NO_ROOM in beside.more
    assert beside.fix == "Stop the other programs, then set num_workers=2."
    assert beside.fix_more[0] == "DataLoader(..., num_workers=2)  # now 0"


def test_the_fix_names_all_that_its_gain_takes():
    """The first screen shows the fix and the gain alone."""
    facts = {"effective_cpus": 2.0, "used_cpus": 1.0, "others": 1.0, "epochs": 3}
    facts = without_workers(settings={"persistent_workers": False}, **facts)
    beside = diagnose(facts)[0]

    assert beside.rule_id == "busy_neighbors" and _change(facts).settings == beside.settings
    assert all(f"{name}={value}" in beside.fix for name, value in beside.settings.items())
    assert "does not change the dataset between epochs" in beside.condition


def test_what_other_programs_do_is_at_no_line_of_the_training():
    facts = {"effective_cpus": 2.0, "used_cpus": 1.0, "others": 1.0}
    beside = diagnose(without_workers(settings={"made_at": "train.py:31"}, **facts))[0]

    assert beside.rule_id == "busy_neighbors" and beside.settings
    assert beside.place == ""


def test_a_third_of_a_cpu_keeps_no_worker_from_one():
    assert (
        _check(
            without_workers(
                effective_cpus=2.0, used_cpus=0.8, others=0.3, sample={"dataset": (1.0, 0.0, 0.0)}
            )
        )
        is None
    )


def test_no_more_workers_are_promised_than_there_are_cpus_however_blocked_samples_look_beside_the_neighbor():
    facts = without_workers(
        effective_cpus=2.0,
        used_cpus=0.3,
        others=1.9,
        sample={"dataset": (0.1, 0.0, 60.0)},
        main_runqueue_share=0.3,
    )
    finding = _check(facts)

    assert needed(_alone(facts)) == 8  # by what it is blocked
    assert finding.settings.get("num_workers", 0) <= 2


def test_workers_that_mostly_sleep_are_kept_from_no_cpu():
    facts = {"effective_cpus": 2.0, "used_cpus": 0.3, "others": 1.9}
    computing, sleeping = (
        dict.fromkeys(SAMPLE, (1.0, 0.0, 0.0)),
        dict.fromkeys(SAMPLE, (0.1, 0.0, 0.9)),
    )

    assert _NO_ROOM in _check(without_workers(**facts, sample=computing)).more
    assert _check(without_workers(**facts, sample=sleeping)) is None


def test_samples_that_only_wait_for_a_cpu_are_no_work_for_workers():
    step = {"forward": 0.3, "backward": 0.4, "optimizer": 0.1, "other": 0.0, "copy": 0.0}
    queueing = dict.fromkeys(
        SAMPLE, (0.005, 0.02, 0.0)
    )  # 4 ms a batch, 0.8 with a CPU: at most 1.4 from a worker
    finding = _check(
        without_workers(
            **CROWDED, main_runqueue_share=0.4, stages=step, sample=queueing, batch_tensors=3.0
        )
    )

    assert _NO_ROOM not in said(finding) and "num_workers" not in advised(finding)


def test_it_goes_before_what_the_training_would_be_told_alone():
    facts = without_workers(**CROWDED, main_runqueue_share=0.4, sample={"decode": (2.0, 0.7, 0.0)})

    assert diagnose(facts)[0].rule_id == "busy_neighbors"


def test_it_leaves_nothing_unexplained():
    causes = [
        finding.rule_id
        for finding in diagnose(waiting(**CROWDED, sample={"decode": (2.0, 4.8, 0.0)}))
    ]

    assert (
        "cpu_saturated" not in causes
        and "too_few_workers" not in causes
        and "input_bound_unexplained" not in causes
    )
