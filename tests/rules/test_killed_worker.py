"""A worker that was killed: what is said of it, and that it goes before all else."""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.measure.model import KilledWorker
from feedline.analysis.rules.loop import killed_worker

GREW = KilledWorker(1, 0, 40.2, 1.9e9, 1.5e9, 7.2, 210e6, 3.7e9, 2, True, 4e9, True)


def given(killed, facts=None):
    return replace(facts or made_up_facts(), killed=killed)


def test_one_that_grew_until_memory_was_full_leads_the_verdict():
    facts = given(GREW, waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}))
    findings = diagnose(facts)

    assert findings[0].message == (
        "worker 1 was killed because memory was full: it had 1.90 GB and grew by 210 MB per second"
    )
    assert findings[0].more == [
        "the limit of its control group, 4.00 GB, was reached",
        "in 7.20 s it had grown by 1.50 GB",
        "its loader's 2 workers had 3.70 GB together, pages that they share counted for each",
        "it was seen last 40.2 s after the recording began",
    ]
    assert verdict(findings, facts).startswith("Ended early: Worker 1 was killed because memory")
    assert "too_few_workers" not in {finding.rule_id for finding in findings}
    assert diagnose(replace(facts, killed=None))[0].rule_id == "too_few_workers"


@pytest.mark.parametrize(
    ("changes", "message", "why"),
    [
        (
            {"for_memory": False, "limit_reached": False},
            "worker 1 was killed by signal 9, which the kernel did not send for memory",
            "the limit of its control group, 4.00 GB, was not reached",
        ),
        (
            {"for_memory": None, "limit_bytes": None, "limit_reached": None},
            "worker 1 was killed by signal 9, perhaps because memory was full",
            "in 7.20 s it had grown by 1.50 GB",
        ),
        (
            {"limit_reached": False},
            "worker 1 was killed because memory was full",
            "no limit of a control group was reached: the machine's memory was full",
        ),
    ],
    ids=["another sender", "not known", "the machine"],
)
def test_who_sent_the_signal_is_said_as_far_as_it_is_known(changes, message, why):
    finding = killed_worker._check(given(replace(GREW, **changes)))

    assert finding.message.startswith(message) and why in finding.more


def test_the_line_that_makes_it_grow_is_the_place_of_its_fix():
    at_line = replace(GREW, place="data.py:31")
    finding = killed_worker._check(given(at_line))

    assert (finding.place, finding.fix) == (
        "data.py:31",
        "Empty or bound what this line adds to with each sample.",
    )
    by_other = killed_worker._check(given(replace(at_line, for_memory=False)))
    assert by_other.place == "" and by_other.fix.startswith("Find out what sent the signal")


def test_one_that_did_not_grow_is_told_with_its_size():
    finding = killed_worker._check(given(replace(GREW, per_second_bytes=None)))

    assert finding.message == "worker 1 was killed because memory was full: it had 1.90 GB"
    assert finding.fix.startswith("Use fewer workers")


@pytest.mark.parametrize(
    ("first", "which", "fix"),
    [(True, "first", "Load once what all"), (False, "last, unfinished", "Look for samples that")],
)
def test_one_that_grew_for_one_batch_is_not_told_to_keep_what_it_makes(first, which, fix):
    of_one = replace(GREW, per_second_bytes=None, batch_bytes=1.4e9, first_batch=first)
    finding = killed_worker._check(given(of_one))

    assert finding.message == (
        "worker 1 was killed because memory was full: "
        f"it had 1.90 GB, 1.40 GB of it for its {which} batch"
    )
    assert finding.fix.startswith(fix) and not any("grown" in more for more in finding.more)
    unknown = killed_worker._check(given(replace(of_one, for_memory=None)))
    assert unknown.message.endswith("perhaps because memory was full: it had 1.90 GB")
    assert f"for its {which} batch it had grown by 1.40 GB" in unknown.more


@pytest.mark.parametrize(
    ("place", "first_fix"),
    [("", "Look in the dataset for lists"), ("data.py:31", "Empty or bound what this line adds")],
)
def test_after_one_batch_at_most_all_that_it_may_be_is_told(place, first_fix):
    of_one = replace(GREW, per_second_bytes=None, batch_bytes=1.4e9, first_batch=True)
    finding = killed_worker._check(given(replace(of_one, kept_perhaps=True, place=place)))

    fixes = [finding.fix, *finding.fix_more]
    beginnings = [first_fix, "Load once", "Look for samples that", "Use fewer workers"]
    assert len(fixes) == len(beginnings) and all(map(str.startswith, fixes, beginnings))
    assert finding.place == place


def test_a_worker_without_records_is_told_without_a_size():
    finding = killed_worker._check(given(KilledWorker(None, 0, for_memory=True)))

    assert finding.message == "a worker was killed because memory was full"


def test_nothing_is_said_where_none_was_killed():
    assert killed_worker._check(made_up_facts()) is None
