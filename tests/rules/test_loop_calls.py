"""What is said of calls in the training loop that are known to be slow."""

from dataclasses import replace

import numpy as np
import pytest
from rules.made_up import made_up_facts
from user_code.made_stacks import LIBRARIES, LOOP, PYTHON, TORCH, stack, training

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.loop_code import batch_maker, loop_function
from feedline.analysis.measure.clues import Making
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Updated
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.analysis.measure.user_code import loop_code
from feedline.analysis.ranks.communication import CollectiveKind, Communication, ExposedKind
from feedline.analysis.rules.input import made_in_step
from feedline.analysis.rules.loop.own_code import _check

DRAW = [*LOOP, ("plots.py", 8, "draw"), (LIBRARIES + "matplotlib/pyplot.py", 1100, "savefig")]
LOG = [*LOOP, (PYTHON + "logging/__init__.py", 1489, "info")]


def looped(*stacks, on_gpu=False):
    facts = made_up_facts(stages={"other": 60.0})
    code = SampledCode.of([training(*stacks)])
    gpu_stages = {"forward": 0.01} if on_gpu else None
    step = replace(facts.step, own_code=loop_code(code, facts.step.stages), gpu_stages=gpu_stages)
    return replace(facts, code=code, step=step)


def test_a_figure_in_each_step_is_named_with_its_line_and_fix():
    finding = _check(looped(stack(DRAW, 60), stack(LOOP, 10)))

    assert finding.place == "plots.py:8"
    assert any("A figure is drawn and saved" in sentence for sentence in finding.more)
    assert finding.fix == "Keep the values, and draw the figure after training."


def test_code_that_makes_no_known_call_is_named_by_its_line():
    finding = _check(looped(stack([*LOOP, ("stats.py", 5, "moments")], 60)))

    assert finding.place == "stats.py:5"
    assert finding.fix.startswith("Run moments() less often")


def test_the_cost_of_a_known_call_is_what_its_fix_spares_and_not_the_code_beside_it():
    """Of 60 ms, 24 are logging, of which 15 % are left."""
    beside = stack([*LOOP, ("stats.py", 5, "moments")], 60)
    finding = _check(looped(stack(LOG, 40), beside))

    assert finding.fix.startswith("Log every 50 steps or so")
    assert finding.cost_s == pytest.approx(24e-3 * 0.85)
    assert _check(looped(beside)).cost_s == pytest.approx(60e-3)


def test_host_work_is_told_on_a_gpu_too():
    assert _check(looped(stack(LOG, 60), on_gpu=True)).severity is Severity.HIGH
    assert _check(looped(stack(LOOP, 60), on_gpu=True)).severity is Severity.INFO


def test_a_function_that_makes_batches_is_no_code_of_the_loop_and_has_a_line_of_its_own():
    get = [*LOOP[:-1], ("train.py", 64, "main"), ("data.py", 30, "get_batch")]
    read = [*get, (LIBRARIES + "pandas/io/parsers/readers.py", 9, "read_csv")]
    facts = replace(
        looped(stack(read, 200), stack([*LOOP, ("stats.py", 5, "moments")], 40)),
        making=Making(("get_batch (data.py:20)",), np.ones(20, bool), {}, 1.0, 1.0),
    )

    assert loop_function(facts) == ("stats.py:5", pytest.approx(1.0))
    place, known = batch_maker(facts)
    assert place == "data.py:30" and known.call.name == "table_read"


def test_a_queue_that_gives_out_batches_is_waited_for_at_the_line_that_asks_it():
    facts = looped(stack([*LOOP, (PYTHON + "queue.py", 171, "get")], 60))
    making = Making(("Queue.get (python3.11/queue.py:154)",), np.ones(20, bool), {}, 1.0, 1.0)
    step = replace(facts.step, stages={**facts.step.stages, "input": 0.4 * facts.step.mean_s})

    finding = made_in_step.check(replace(facts, making=making, step=step))

    assert finding.place == "train.py:70"
    assert finding.message.startswith("Queue.get waits for each batch")


def without_stacks(mainly: str):
    """What is said of a function that was timed, and is mostly in this one of Python."""
    facts = looped(stack(LOOP, 3))
    kept = OwnFunction("keep (train.py:11)", 0.05, 0.04, 0.06, mainly)
    step = replace(facts.step, own_code=OwnCode(0.06, 200, [kept]))
    return _check(replace(facts, step=step, code=None))


def test_a_call_that_timed_functions_were_seen_to_make_is_known_without_stacks():
    finding = without_stacks("info (python3.11/logging/__init__.py:1489)")

    assert finding.place == "train.py:11"
    assert finding.fix.startswith("Log every 50 steps or so")


def test_what_is_copied_is_not_taken_for_the_state_of_a_model_where_no_line_names_one():
    """It may be the environment of an agent."""
    assert not without_stacks("_deepcopy_dict (python3.11/copy.py:227)").names_known_call


def test_parameters_that_are_collected_again_and_again_are_named_with_their_line():
    update = [*LOOP, ("ema.py", 30, "update_teacher")]
    walk = [*update, (TORCH + "nn/modules/module.py", 2687, "named_parameters")]

    finding = _check(looped(stack(walk, 60), stack(LOOP, 10)))

    assert finding.place == "ema.py:30"
    assert finding.fix.startswith("Collect the parameters once")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("all_gather_object", "Python objects are pickled"),
        ("barrier", "All ranks wait"),
        ("all_reduce", "Values are reduced"),
    ],
)
def test_what_ranks_do_together_in_each_step_is_told_by_its_name(function, says):
    wrapper = (TORCH + "distributed/c10d_logger.py", 83, "wrapper")
    called = [*LOOP, wrapper, (TORCH + "distributed/distributed_c10d.py", 3000, function)]

    more = _check(looped(stack(called, 60), stack(LOOP, 10))).more
    assert any(sentence.startswith(says) for sentence in more)


def reducing(*, calls, elements, phase="other"):
    """A loop of 1,000 parameters in 10 tensors, which all-reduces elements in so many calls a step."""
    wrapper = (TORCH + "distributed/c10d_logger.py", 83, "wrapper")
    called = [*LOOP, wrapper, (TORCH + "distributed/distributed_c10d.py", 3000, "all_reduce")]
    facts = looped(stack(called, 60), stack(LOOP, 10))
    count = calls * facts.throughput.steps
    kind = CollectiveKind("all_reduce", 4 * elements // calls, 2, "gloo", count, None, None, None)
    exposed = {"0": [ExposedKind("all_reduce", phase, 0.01)]}
    comm = Communication([kind], None, "none", [], "", None, [], [], [], exposed)
    return replace(facts, comm=comm, updated=Updated("SGD", 10, 1000, False), shown=0)


@pytest.mark.parametrize(
    ("calls", "elements", "phase", "says", "fix"),
    [
        (10, 1000, "other", "Gradients are reduced over all ranks after", "DistributedData"),
        (1, 1000, "other", "Gradients are reduced over all ranks only", "during the backward"),
        (10, 20, "other", "Values are reduced", "every 50 steps"),
        (10, 1000, "backward", "Values are reduced", "every 50 steps"),
    ],
)
def test_gradients_that_the_loop_reduces_are_not_told_to_be_reduced_less_often(
    calls, elements, phase, says, fix
):
    finding = _check(reducing(calls=calls, elements=elements, phase=phase))

    assert any(sentence.startswith(says) for sentence in finding.more)
    assert fix in finding.fix


def test_reduced_gradients_are_known_where_most_windows_of_a_long_run_were_forgotten():
    facts = reducing(calls=10, elements=1000)
    pace = replace(facts.throughput, steps=16 * facts.throughput.steps)

    finding = _check(replace(facts, throughput=pace))

    assert "DistributedData" in finding.fix and "every 50 steps" not in finding.fix


def test_a_small_known_call_hides_no_larger_function():
    """Ten parts of ``compute``, and one of a call whose slowness is known."""
    facts = looped(stack(LOOP, 3))
    large = OwnFunction("compute (train.py:40)", 0.052, 0.05, 0.054, "")
    small = OwnFunction(
        "keep (train.py:11)", 0.005, 0.004, 0.006, "info (python3.11/logging/__init__.py:1489)"
    )
    step = replace(facts.step, own_code=OwnCode(0.06, 200, [large, small]))

    finding = _check(replace(facts, step=step, code=None))

    assert "compute()" in finding.fix and finding.severity is Severity.HIGH


def test_what_a_known_call_leaves_of_the_code_has_a_fix_too():
    write = [*LOOP, ("log.py", 5, "note"), (PYTHON + "logging/__init__.py", 1489, "info")]
    finding = _check(looped(stack(write, 40), stack([*LOOP, ("stats.py", 9, "moments")], 60)))

    assert finding.fix.startswith("Log every 50 steps or so")
    assert len(finding.fix_more) >= 1 and finding.severity is Severity.HIGH
