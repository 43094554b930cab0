from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting, without_workers
from text.breath import advised
from user_code.made_stacks import FETCHING, PYTHON, process, stack

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Traffic
from feedline.analysis.rules import BY_ID
from feedline.analysis.rules.input.blocked import _FIX, _check

BLOCKED = {"dataset": (0.5, 0.0, 12.0)}  # 71 % of the sample
NOTHING = Traffic(read_chars=0.0, read_calls=0.0, disk_bytes=0.0, major_faults=0.0)


def looked(kind, share=1.0, looks=60):
    return {"blocked_by": {kind: share, "file": 1 - share}, "blocked_looks": looks}


@pytest.mark.parametrize("kind", _FIX)
def test_what_samples_wait_for_is_named_with_its_own_fix(kind):
    finding = _check(waiting(60.0, sample=BLOCKED, traffic=NOTHING, maker=looked(kind)))

    assert (finding.rule_id, finding.severity) == ("blocked", Severity.HIGH)
    assert [finding.fix, *finding.fix_more][: len(_FIX[kind])] == _FIX[kind]
    assert {(e.id, e.of): e.value for e in finding.evidence}[
        "blocked_by_share", kind
    ] == pytest.approx(12.0 / 16.8)


def test_a_call_that_is_known_to_wait_is_named_first():
    ask = [
        *FETCHING,
        ("data.py", 22, "__getitem__"),
        (PYTHON + "multiprocessing/managers.py", 824, "_callmethod"),
    ]
    facts = waiting(60.0, sample=BLOCKED, traffic=NOTHING, maker=looked("another process"))
    code = SampledCode.of([process("worker", stack(ask, 100))])

    finding = _check(replace(facts, code=code))

    assert finding.place == "data.py:22"
    assert finding.fix.startswith("Keep arrays that workers inherit")
    assert "Manager" in finding.more[0]


def test_too_few_looks_leave_unknown_what_it_is():
    finding = _check(waiting(60.0, sample=BLOCKED, traffic=NOTHING, maker=looked("sleep", looks=9)))

    assert finding.message.endswith("blocked on something other than storage")
    assert finding.more == ["the cause is unknown"]


def test_it_does_not_speak_where_files_are_read_and_no_look_tells_what_blocks():
    assert _check(waiting(60.0, sample=BLOCKED)) is None


def test_storage_is_left_to_the_rules_about_storage():
    assert _check(waiting(60.0, sample=BLOCKED, maker=looked("sleep", 0.4))) is None


def test_workers_are_advised_against_what_must_remain_and_can_overlap():
    facts = {
        kind: waiting(60.0, sample=BLOCKED, traffic=NOTHING, maker=looked(kind)) for kind in _FIX
    }

    assert {kind for kind in _FIX if "num_workers" in advised(_check(facts[kind]))} == {
        "network",
        "another process",
    }


@pytest.mark.parametrize("kind", ["network", "another process"])
def test_nothing_is_predicted_of_workers_that_all_ask_the_same_side(kind):
    facts = waiting(
        260.0, sample={"dataset": (0.5, 0.0, 40.0)}, traffic=NOTHING, maker=looked(kind)
    )

    refused = [BY_ID[finding.rule_id].change(facts) for finding in diagnose(facts)[:2]]
    assert [one.reason for one in refused] == ["unknown_answers"] * 2
    assert "feedline verify RUN --set num_workers=" in refused[0].message


def test_why_workers_are_slow_comes_before_the_advice_to_have_more():
    slow = {"dataset": (0.5, 0.0, 40.0)}
    found = diagnose(waiting(260.0, sample=slow, traffic=NOTHING, maker=looked("network")))

    assert [finding.rule_id for finding in found[:2]] == ["blocked", "too_few_workers"]


def test_having_no_workers_comes_before_what_a_sample_waits_for():
    found = diagnose(without_workers(sample=BLOCKED, traffic=NOTHING, maker=looked("network")))

    assert [finding.rule_id for finding in found[:2]] == ["too_few_workers", "blocked"]


def test_a_healthy_training_may_sleep():
    assert _check(made_up_facts(sample=BLOCKED, maker=looked("sleep"))) is None


def test_more_workers_are_no_advice_where_the_ones_there_are_wait_for_a_lock():
    slow = {"dataset": (0.5, 0.0, 100.0)}
    lock, network = (
        diagnose(waiting(740.0, sample=slow, traffic=NOTHING, maker=looked(kind)))
        for kind in ("lock", "network")
    )

    assert [finding.rule_id for finding in lock] == ["blocked"]
    assert [finding.rule_id for finding in network] == ["blocked", "too_few_workers"]
