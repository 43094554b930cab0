"""Gradients that come between an update and the clearing after it, from exact records."""

from dataclasses import replace

import pytest
from measure.made_up_records import MadeUp
from user_code.made_stacks import BACKWARD, LOOP, process, stack

from feedline.analysis.measure.needless import unused_gradients
from feedline.profiler.events import Stage

TRAINING = {
    "optimizers": [
        {"groups": [{"elements": 900}]},
        {"groups": [{"elements": 60}, {"elements": 40}]},
    ]
}


def two_models(steps=20, cleared=range(20), elements=900):
    """In 100 ns, a backward pass and an update of each of two models; the first is cleared late."""
    main = MadeUp()
    for at in range(0, steps * 100, 100):
        main.backward(at + 10, at + 30).update(at + 30, at + 35, optimizer=1)
        extra = elements if at // 100 in cleared else 0
        main.span(Stage.GRADIENTS, at + 40, at + 41, extra=extra, number=0 if extra else -1)
        main.backward(at + 50, at + 58).update(at + 60, at + 65, optimizer=0)
    return main.process()


def test_the_passes_between_an_update_and_its_clearing_are_those_that_compute_them():
    found = unused_gradients(two_models(), TRAINING, [])

    assert (found.elements, found.share, found.place) == (900, 0.9, "")
    assert found.backward_s == pytest.approx(19 / 20 * 20e-9)  # there is no update before the first


def test_the_line_is_that_of_most_samples_in_these_passes():
    def at_line(line, *moments):
        frames = [*LOOP[:-1], ("gan.py", line, "main"), *BACKWARD]
        return replace(stack(frames, len(moments)), moments=moments)

    moments = [at + 20 for at in range(100, 1000, 100)]
    others = [at + 55 for at in range(0, 2000, 100)]
    seen = process("main", at_line(50, *moments), at_line(60, *others))

    assert unused_gradients(two_models(), TRAINING, [seen]).place == "gan.py:50"


def test_what_is_cleared_unused_now_and_then_is_not_told():
    assert unused_gradients(two_models(cleared=range(5)), TRAINING, []) is None
    assert unused_gradients(two_models(cleared=()), TRAINING, []) is None
    assert unused_gradients(two_models(steps=4, cleared=range(4)), TRAINING, []) is None
