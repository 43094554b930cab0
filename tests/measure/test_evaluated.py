"""What evaluation takes that happens again, and the line of the loop at which a program evaluates."""

from dataclasses import replace

import numpy as np
import pytest
from ledger.test_recorded_ledger import recorded
from measure.made_up_records import MadeUp
from user_code.made_stacks import BACKWARD, FORWARD, LOOP, process, stack, training

from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.rank_metrics import step_summary
from feedline.analysis.measure.user_code import evaluating_line

EVALUATION = np.array([[100, 200], [500, 600]], np.int64)
CODE = SampledCode.of([training()])


def at_line(line, *moments):
    """A stack in a model that a function calls, which the loop calls at this line."""
    frames = [*LOOP[:-1], ("train.py", line, "main"), ("tests.py", 9, "evaluate"), *FORWARD]
    return replace(stack(frames, len(moments)), moments=moments)


def test_the_line_that_most_samples_in_evaluations_were_called_at_is_told():
    seen = process("main", at_line(80, 110, 120, 130, 510, 520), at_line(71, 300, 310, 320, 330))

    assert evaluating_line(EVALUATION, CODE, [seen]) == "train.py:80"


def test_the_line_is_told_where_the_loop_is_no_function_but_the_programs_own_text():
    begun = LOOP[:1]
    steps = [stack([*begun, ("train.py", 44, "<module>"), *FORWARD], 100)]
    code = SampledCode.of(
        [process("main", *steps, stack([*begun, ("train.py", 46, "<module>")], 9))]
    )
    frames = [*begun, ("train.py", 48, "<module>"), ("train.py", 30, "validate"), *FORWARD]
    moments = (110, 120, 130, 510, 520)
    seen = process("main", replace(stack(frames, len(moments)), moments=moments))

    assert evaluating_line(EVALUATION, code, [seen]) == "train.py:48"


def test_where_a_library_trains_and_evaluates_in_one_line_its_caller_within_is_told():
    fit = [("train.py", 9, "main"), ("site-packages/ignite/engine.py", 8, "run")]
    trains = [*fit, *BACKWARD]
    code = SampledCode.of([process("main", stack(trains, 20))])
    moments = (110, 120, 130, 510, 520)

    def place(*within):
        frames = [*fit, *within, ("site-packages/ignite/engine.py", 8, "run"), *FORWARD]
        evaluates = replace(stack(frames, len(moments)), moments=moments)
        return evaluating_line(EVALUATION, code, [process("main", evaluates, stack(trains, 20))])

    assert place(("train.py", 40, "validate")) == "train.py:40"
    assert place() == ""


def test_few_samples_or_several_lines_have_none():
    few = process("main", at_line(80, 110, 120, 130, 510))
    lines = [at_line(line, *range(110, 115)) for line in (80, 81, 82)]

    assert evaluating_line(EVALUATION, CODE, [few]) == ""
    assert evaluating_line(EVALUATION, CODE, [process("main", *lines)]) == ""
    assert evaluating_line(EVALUATION[:0], CODE, [few]) == ""
    assert evaluating_line(EVALUATION, None, [few]) == ""


@pytest.mark.parametrize(
    ("took", "once", "again"),
    [
        ((650, 30, 30, 400), 620 + 370, 4),  # a check before the first step, a test at the end
        ((50, 30, 30, 50), 0, 4),  # rollouts
        ((650, 0, 0, 0), 650, 0),
        ((650, 0, 0, 30), 650, 1),
        ((0, 0, 0, 400), 0, 1),  # the only epoch's, as far as is known
    ],
)
def test_what_is_evaluated_once_is_told_from_what_is_evaluated_again(took, once, again):
    run, at, ms = MadeUp(), 0, 1_000_000
    for evaluation in took:
        for _ in range(4 if at else 0):
            at += 10 * ms
            run.forward(at, at + ms).backward(at + ms, at + 2 * ms).update(at + 2 * ms, at + 3 * ms)
        at += 10 * ms
        for _ in range(10 if evaluation else 0):
            tenth = evaluation * ms // 10
            run.forward(at, at + tenth, grad=False)
            at += tenth

    step = step_summary(recorded(run, 0, at))

    assert step.evaluation_s == pytest.approx(sum(took) / 1e3)
    assert step.evaluation_once_s == pytest.approx(once / 1e3)
    assert step.evaluations == again


def test_the_period_of_evaluation_is_counted_in_whole_epochs():
    """Also where a step lasts until the next batch is asked for, with an evaluation inside."""
    run, at, ms = MadeUp(), 0, 1_000_000
    for _ in range(3):
        for batch in range(5):
            run.next(at, at + ms, batch).forward(at + ms, at + 2 * ms)
            run.backward(at + 2 * ms, at + 3 * ms).update(at + 3 * ms, at + 4 * ms)
            at += 5 * ms
        for batch in range(4):
            run.next(at, at + ms, batch, loader=1).forward(at + ms, at + 2 * ms, grad=False)
            at += 5 * ms

    step = step_summary(recorded(run, 0, at))

    assert (step.evaluations, step.evaluation_period) == (3, 5.0)
    assert step.evaluation_loads


def test_rollouts_are_none_although_an_evaluation_asks_a_loader_now_and_then():
    run, at, ms = MadeUp(), 0, 1_000_000
    for round in range(6):
        for _ in range(12):  # of a policy, without a loader
            run.forward(at, at + ms, grad=False)
            at += ms
        for _ in range(2):
            run.forward(at, at + ms)
            run.backward(at + ms, at + 2 * ms).update(at + 2 * ms, at + 3 * ms)
            at += 4 * ms
        for batch in range(4 if round == 2 else 0):
            run.next(at, at + ms, batch, loader=1).forward(at + ms, at + 2 * ms, grad=False)
            at += 2 * ms

    step = step_summary(recorded(run, 0, at))

    assert step.evaluation_s == pytest.approx((6 * 12 + 4 * 2) / 1e3)
    assert not step.evaluation_loads


def test_the_period_is_of_updates_where_a_library_asks_for_a_batch_ahead():
    """Accelerate asks for the next batch before it gives out one: that there is none is known
    before the last update of an epoch.
    """
    run, at, ms = MadeUp(), 0, 1_000_000
    for _ in range(3):
        run.next(at, at + ms)
        at += ms
        for batch in range(1, 6):
            if batch < 5:
                run.next(at, at + ms, batch)
            else:
                run.end(at, at + ms)
            run.forward(at + ms, at + 2 * ms)
            run.backward(at + 2 * ms, at + 3 * ms).update(at + 3 * ms, at + 4 * ms)
            at += 5 * ms
        for _ in range(10):
            run.forward(at, at + ms, grad=False)
            at += ms

    step = step_summary(recorded(run, 0, at))

    assert (step.evaluations, step.evaluation_period) == (3, 5.0)
