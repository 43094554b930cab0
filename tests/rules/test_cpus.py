from dataclasses import replace

import pytest
from rules.made_up import waiting

from feedline.analysis.ledger.view import cpus
from feedline.analysis.ledger.view.cpus import cpu_share_of, own_cpus

QUEUED = {
    "decode": (2.0, 4.8, 0.0)
}  # half of a sample's time: 4 workers that are busy 0.4 of theirs lack 0.8 CPUs


def test_where_nothing_was_sampled_at_least_the_making_of_samples_uses_cpus():
    assert own_cpus(waiting(used_cpus=None, process_cpu_s=5e-3)) == pytest.approx(
        5e-3 * 32 / 0.1609, rel=0.01
    )


def test_cpus_in_use_are_unknown_where_nothing_was_measured():
    assert own_cpus(waiting(used_cpus=None, maker={"per_sample": {}})) is None


def test_a_stage_that_did_not_occur_has_no_share():
    assert cpu_share_of(waiting(), "transport") == 0.0


def test_a_stage_takes_at_most_all_of_the_cpu_time_however_few_samples_it_is_known_from():
    facts = waiting(sample={"augment": (9.0, 0.0, 0.0)})
    costs = facts.workers.per_sample
    facts = replace(
        facts,
        workers=replace(
            facts.workers, per_sample=costs | {"total": replace(costs["total"], cpu_s=8e-3)}
        ),
    )

    assert cpu_share_of(facts, "augment") == pytest.approx(9.0 / 12.3)


def test_waiting_for_cpus_that_other_programs_hold_is_not_the_trainings_own():
    assert waiting(sample=QUEUED).waiting_cpus() == pytest.approx(0.8)
    assert cpus.by_others(waiting(sample=QUEUED, others=0.4)) == pytest.approx(0.5)
    assert cpus.saturated(waiting(sample=QUEUED, used_cpus=6.2))
    assert not cpus.saturated(waiting(sample=QUEUED, used_cpus=6.2, others=1.7))


def test_cpus_of_which_a_quarter_is_free_are_not_full_however_long_samples_queue():
    assert not cpus.saturated(waiting(sample=QUEUED, used_cpus=6.0))


def test_what_a_quota_keeps_from_the_run_is_not_other_programs_doing():
    facts = waiting(sample=QUEUED, effective_cpus=0.5, used_cpus=0.5, others=1.5)

    assert cpus.by_others(facts) == 0 and cpus.saturated(facts)


def test_ranks_of_one_machine_share_what_other_programs_leave():
    facts = waiting(sample=QUEUED, others=0.8)
    two = replace(facts, cpus=replace(facts.cpus, ranks=2))

    assert (cpus.by_others(facts), cpus.by_others(two)) == (pytest.approx(1), pytest.approx(0.5))
    assert cpus.left_by_others(two) == pytest.approx(3.6)


@pytest.mark.parametrize(
    ("facts", "sentences"),
    [
        (
            waiting(others=1.6),
            ["this training uses 3.00 of 8 CPUs, other programs use 1.60", "3.40 CPUs are free"],
        ),
        (waiting(), ["this training uses 3.00 of 8 CPUs", "5.00 CPUs are free"]),
        (
            waiting(used_cpus=None),
            [
                "making samples uses 0.958 of 8 CPUs",
                "CPU use by other programs was not sampled",
            ],
        ),
        (
            waiting(used_cpus=None, maker={"per_sample": {}}),
            ["how many of 8 CPUs are free was not measured"],
        ),
    ],
)
def test_advice_says_whose_use_of_the_cpus_it_goes_by(facts, sentences):
    assert cpus.use(facts) == sentences
