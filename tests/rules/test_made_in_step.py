import numpy as np
import pytest
from rules.made_up import made_up_facts
from rules.said import verdict
from text.breath import advised, said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.measure.clues import Making
from feedline.analysis.measure.model import Certainty, Moved
from feedline.analysis.rules.input.made_in_step import check
from feedline.analysis.text.formatting import sentence


def facts(input_ms: float, other: float = 1.0, working: float = 1.0, named: bool = True, **changes):
    """A step of 98 ms and what making takes."""
    making = (
        Making(("get_batch (train.py:116)",), np.ones(20, bool), {}, 1.0, working)
        if named
        else None
    )
    stages = {"input": input_ms, "other": other, "transport": 0.0}
    return made_up_facts(stages=stages, waits={"starved": 0.0}, **changes), making


def given(input_ms: float, **changes):
    found, making = facts(input_ms, **changes)
    share = found.step.stages["input"] / found.step.mean_s
    sure = Certainty(200, share * 0.9, share * 1.1)
    return type(found)(
        **{
            **vars(found),
            "loader": None,
            "workers": None,
            "making": making,
            "wait_share": share,
            "certainty": sure,
        }
    )


def test_the_function_is_named_with_what_it_takes():
    found = given(20.0)
    (finding, *_) = diagnose(found)

    assert finding.rule_id == "made_in_step" and finding.cost_s == pytest.approx(0.020)
    assert finding.message == "get_batch makes each batch in the main thread: 20.0 ms per step"
    assert finding.place == "train.py:116"
    assert verdict([finding], found).startswith("Partly input-bound: Input takes 17 % of each step")
    assert "ThreadPoolExecutor" in advised(finding) and "num_workers=1" in advised(finding)


def test_below_what_a_worker_spares_none_is_advised():
    finding = check(given(0.9))

    assert finding is None
    short = given(6.4)
    advice = advised(check(short))
    assert "ThreadPoolExecutor" in advice and "DataLoader" not in advice


def test_without_a_free_cpu_a_thread_is_not_advised():
    assert "would not help" in advised(check(given(20.0, used_cpus=8.0)))


def test_a_function_that_sleeps_is_said_to_wait():
    finding = check(given(20.0, working=0.1))

    assert "waits for each batch" in finding.message and finding.fix.startswith(
        "Request the next batch"
    )


def test_below_the_gate_the_input_is_acquitted_only_if_nothing_else_can_be_input():
    assert diagnose(given(1.0))[0].rule_id == "compute_bound"
    assert "get_batch at train.py:116 makes each batch" in diagnose(given(2.0))[0].more
    # next to nothing: it may only give out what is in memory
    assert not any("each batch" in one for one in diagnose(given(0.5))[0].more)
    (doubt, *_) = diagnose(given(1.0, other=30.0))
    assert (
        doubt.rule_id == "input_not_seen"
        and "another 30.0 ms per step (23 %) belong to no stage" in said(doubt)
    )


def test_a_stage_that_the_program_calls_input_needs_no_function():
    finding = check(given(20.0, named=False))

    assert finding.message.startswith("the program's stage 'input' makes each batch")


def test_a_functions_name_stays_as_it_is_at_the_beginning_of_a_sentence():
    assert (
        sentence("get_batch (train.py:116) makes each batch")
        == "get_batch (train.py:116) makes each batch"
    )
    assert sentence("batch (train.py:3) makes each batch") == "batch (train.py:3) makes each batch"
    assert sentence("no loader was seen") == "No loader was seen"


@pytest.mark.parametrize(("pageable", "advises"), [(0.0, False), (0.2, True), (None, True)])
def test_pinned_memory_is_advised_only_where_a_copy_may_come_from_other_memory(pageable, advises):
    """None: that was not seen."""
    moved = {} if pageable is None else {"copy": Moved(1.0, 4e6, 0.001, pageable)}

    assert ("pinned memory" in advised(check(given(20.0, moved=moved)))) is advises
