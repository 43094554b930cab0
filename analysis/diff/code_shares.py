"""What the program's own functions take, as two runs are compared by it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from feedline.analysis.measure.code_places import (
    BACKWARD,
    EVALUATION,
    MAKING,
    OPTIMIZER,
    SAMPLER,
    START,
    WAIT,
)
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.user_code import UserCode
from feedline.analysis.text.formatting import called

#: Groups of quantities: functions that make samples, and others of the step.
OF_SAMPLE, OF_STEP = "code_sample", "code_step"
#: What is seen there is the training loop itself, whose parts are the stages.
_OF_LOOP = (WAIT, START, SAMPLER, BACKWARD, OPTIMIZER)
# sampled stacks of a group: of fewer, a function that was not seen may still be there
_FEWEST_STACKS = 50
#: Of the whole: what a function takes that was not seen. Less than 1 % is not told, and of few
#: stacks none may be in it.
UNSEEN = math.hypot(0.01, 1 / _FEWEST_STACKS)


@dataclass(frozen=True)
class _FunctionShare:
    """A function of the program, without those of the program that it calls.

    Attributes:
        group: OF_SAMPLE or OF_STEP.
        name: with its file: ``tokenize() in data.py``.
        share: (0 to 1) of making a sample, or of the step.
        error: of ``share``, relative.
    """

    group: str
    name: str
    share: float
    error: float


def known_groups(code: UserCode | None) -> set[str]:
    """Return the groups of which enough stacks were sampled to compare their functions."""
    if code is None:
        return set()
    counts = {OF_SAMPLE: code.making_samples, OF_STEP: code.step_samples}
    return {group for group, count in counts.items() if count >= _FEWEST_STACKS}


def function_shares(code: UserCode) -> Iterator[_FunctionShare]:
    """Return the program's functions, those of several places once."""
    loop = {
        (one.file, one.function)
        for one in code.functions
        if one.kind == MAIN and one.place in _OF_LOOP
    }
    shares: dict[tuple[str, str], float] = {}
    for one in code.functions:
        if one.kind == MAIN and one.place not in MAKING:
            if one.place == EVALUATION or (one.file, one.function) in loop:
                continue
        elif one.place not in MAKING:
            continue
        key = OF_SAMPLE if one.place in MAKING else OF_STEP, _named(one.function, one.file)
        shares[key] = shares.get(key, 0.0) + one.own_share
    for (group, name), share in shares.items():
        number = code.making_samples if group == OF_SAMPLE else code.step_samples
        if share > 0 and number:
            error = math.sqrt((1 - min(share, 1.0)) / share / number * code.spread)
            yield _FunctionShare(group, name, share, error)


def _named(function: str, file: str) -> str:
    """Return the name of a function with brackets, or of a line of a module without."""
    return f"{called(function)} in {file}"
