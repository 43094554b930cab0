"""The line of the training loop at which a program evaluates."""

from dataclasses import replace

import numpy as np
from user_code.made_stacks import FORWARD, LOOP, process, stack, training

from feedline.analysis.measure.code_tree import SampledCode
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


def test_few_samples_or_several_lines_have_none():
    few = process("main", at_line(80, 110, 120, 130, 510))
    lines = [at_line(line, *range(110, 115)) for line in (80, 81, 82)]

    assert evaluating_line(EVALUATION, CODE, [few]) == ""
    assert evaluating_line(EVALUATION, CODE, [process("main", *lines)]) == ""
    assert evaluating_line(EVALUATION[:0], CODE, [few]) == ""
    assert evaluating_line(EVALUATION, None, [few]) == ""
