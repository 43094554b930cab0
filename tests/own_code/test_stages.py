"""What making takes leaves the stage that it lies in, also in steps in which it was not timed."""

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Flag, Stage

STEP = 100


def made(main, at, took, gap, copied=0):
    return main.span(
        Stage.MADE, at, at + took, extra=gap, cpu=took, runqueue=copied, number=1, source=1
    )


def steps(looked, loss=False):
    """8 steps: 10 forward, 20 in which 12 are made, 30 backward, 10 update, 30 other."""
    main = MadeUp()
    main.names[1] = "get_batch (train.py:1)"
    for step in range(8):
        at = STEP * step
        main.span(
            Stage.FORWARD,
            at,
            at + 10,
            flags=Flag.GRAD | Flag.TRAINING | (0 if loss else Flag.WITH_LOSS),
        )
        main.backward(at + 30, at + 60).update(at + 60, at + 70)
        if step in looked:
            made(main, at + 10, 12, 20)
            main.span(Stage.LOOKED, at - 29, at + 71)
    return main


def test_what_is_made_leaves_other():
    found = steps_of(steps(range(1, 8)).process())

    assert found.making.looked.tolist() == [False] + 7 * [True]
    assert found.stages["input"].tolist() == 8 * [12]
    assert (sum(found.stages.values()) == found.wall).all()


def test_between_a_forward_and_its_backward_it_leaves_the_loss():
    found = steps_of(steps(range(1, 8), loss=True).process())

    assert found.stages["loss"].tolist() == 8 * [8] and found.stages["input"].tolist() == 8 * [12]


def test_steps_that_were_not_looked_at_are_given_the_mean():
    found = steps_of(steps([2, 3, 5, 7]).process())

    assert found.stages["input"].tolist() == 8 * [12] and found.making.looked.sum() == 4


def test_too_few_looks_say_nothing():
    found = steps_of(steps([2, 3, 5]).process())

    assert found.making is None and "input" not in found.stages


def test_copies_stay_copies():
    main = steps([])
    for step in range(1, 8):
        at = STEP * step
        made(main, at + 10, 12, 20, copied=5)
        main.span(Stage.COPY, at + 15, at + 20).span(Stage.LOOKED, at - 29, at + 71)
    found = steps_of(main.process())

    assert found.stages["input"].tolist()[1:] == 7 * [7] and found.stages["copy"].tolist()[
        1:
    ] == 7 * [5]


def test_a_batch_for_an_evaluation_is_not_the_steps():
    main = steps(range(1, 8))
    made(main, 275, 4, 5)
    for call in range(4):
        main.span(Stage.FORWARD, 280 + 4 * call, 283 + 4 * call)
    found = steps_of(main.process())

    assert found.boundaries.evaluation.tolist() == [[280, 295]]
    assert found.stages["input"].tolist() == 8 * [12]


def test_a_function_inside_a_stage_of_the_programs_own_is_that_stage():
    main = steps(range(1, 8))
    main.names[2] = "input"
    for step in range(8):
        main.span(Stage.USER, STEP * step + 10, STEP * step + 30, source=2)
    found = steps_of(main.process())

    assert found.making is None and found.stages["input"].tolist() == 8 * [20]


@pytest.mark.parametrize("missing", [-29, 20])
def test_a_step_that_was_looked_at_in_part_does_not_count(missing):
    main = steps([2, 3, 4, 5, 6])
    main.rows = [row for row in main.rows if not (row[-1] == Stage.LOOKED and row[0] == 271)]
    main.span(Stage.LOOKED, 300 + missing, 360 if missing < 0 else 371)
    found = steps_of(main.process())

    assert not found.making.looked[3]
