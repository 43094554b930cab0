"""Steps are found without a call by the user, and every nanosecond of a step belongs to one stage."""

import numpy as np
import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Stage


def edges(main):
    steps = steps_of(main.process())
    return list(zip(steps.start.tolist(), (steps.start + steps.wall).tolist()))


def plain(main, at, batch, loader=0):
    """One iteration of 100 ns: wait 10, forward 20, loss 5, backward 30, update 10, logging 25."""
    main.next(at, at + 10, batch, loader).forward(at + 10, at + 30).backward(
        at + 35, at + 65
    ).update(at + 65, at + 75)
    return main


def test_a_plain_loop_is_cut_where_the_loader_is_asked():
    main = MadeUp()
    for batch in range(3):
        plain(main, batch * 100, batch)

    assert edges(main) == [(0, 100), (100, 200), (200, 275)]


def test_a_time_lies_in_a_step_from_its_begin_to_before_its_end():
    boundaries = steps_of(plain(plain(MadeUp(), 0, 0), 100, 1).process()).boundaries

    steps = boundaries.step_of(np.array([-1, 0, 99, 100, 174, 175]))

    assert steps.tolist() == [-1, 0, 0, 1, 1, -1]


def test_the_partition_sums_to_the_step():
    main = plain(plain(MadeUp(), 0, 0), 100, 1)
    steps = steps_of(main.process())

    first = {name: int(values[0]) for name, values in steps.stages.items()}
    assert first == {
        "wait": 10,
        "forward": 20,
        "loss": 5,
        "backward": 30,
        "optimizer": 10,
        "other": 25,
    }
    assert sum(first.values()) == steps.wall[0]


def test_gradient_accumulation_makes_one_step_of_several_batches():
    main = MadeUp()
    for step in range(2):
        at = step * 200
        main.next(at, at + 5, 2 * step).forward(at + 5, at + 20).backward(at + 20, at + 50)
        plain(main, at + 100, 2 * step + 1)
    steps = steps_of(main.process())

    assert edges(main) == [(0, 200), (200, 375)]
    assert steps.batches.tolist() == [2, 2]
    assert steps.samples.tolist() == [4, 4]


def test_two_optimizers_that_take_turns_make_one_step():
    main = MadeUp()
    for batch in range(3):
        at = batch * 100
        main.next(at, at + 5, batch).forward(at + 5, at + 15).backward(at + 15, at + 30).update(
            at + 30, at + 40, optimizer=1
        )
        main.forward(at + 40, at + 60).backward(at + 60, at + 80).update(
            at + 80, at + 90, optimizer=2
        )

    assert edges(main) == [(0, 100), (100, 200), (200, 290)]


def test_updates_without_a_loader_end_their_own_steps():
    main = MadeUp()
    for step in range(3):
        at = step * 50
        main.forward(at, at + 10).backward(at + 10, at + 30).update(at + 30, at + 40)

    assert edges(main) == [(0, 40), (40, 90), (90, 140)]


def test_evaluation_is_no_part_of_a_step():
    main = plain(MadeUp(), 0, 0)
    main.span(Stage.EPOCH, 100, 110, source=1)
    for batch in range(2):
        main.next(110 + 20 * batch, 115 + 20 * batch, batch, loader=1).forward(
            115 + 20 * batch, 125 + 20 * batch, grad=False
        )
    main.end(150, 152, loader=1)
    plain(main, 160, 1)
    steps = steps_of(main.process())

    assert steps.boundaries.evaluation.tolist() == [[100, 160]]
    assert steps.boundaries.training_loaders == {0}
    assert steps.wall.tolist() == [100, 75]
    assert steps.batches.tolist() == [1, 1]


def test_evaluation_on_the_training_loader_is_told_apart():
    main = plain(MadeUp(), 0, 0)
    main.next(100, 105, 0).forward(105, 115, grad=False).end(118, 120)
    plain(main, 130, 1)
    steps = steps_of(main.process())

    assert steps.boundaries.evaluation.tolist() == [[100, 118]]
    assert steps.batches.tolist() == [1, 1]


def test_the_start_of_an_epoch_belongs_to_its_first_step():
    main = plain(MadeUp(), 0, 0)
    main.end(100, 104).span(Stage.EPOCH, 110, 150)
    plain(main, 150, 0)
    steps = steps_of(main.process())

    assert edges(main)[1] == (100, 225)
    assert int(steps.stages["epoch_start"][1]) == 40


def test_a_training_without_an_optimizer_of_torch_is_cut_by_backward():
    main = MadeUp()
    for batch in range(2):
        main.next(batch * 50, batch * 50 + 5, batch).forward(
            batch * 50 + 5, batch * 50 + 15
        ).backward(batch * 50 + 15, batch * 50 + 30)

    assert steps_of(main.process()).boundaries.by == "backward"
    assert edges(main) == [(0, 50), (50, 80)]


def test_reading_a_loader_alone_is_cut_by_its_batches():
    main = MadeUp().next(0, 10, 0).next(20, 30, 1).next(40, 50, 2)

    assert steps_of(main.process()).boundaries.by == "loader"
    assert edges(main) == [(0, 20), (20, 40), (40, 50)]


def test_no_step_at_all_is_said_to_be_none():
    assert steps_of(MadeUp().forward(0, 10).process()) is None
    assert steps_of(MadeUp().process()) is None


def test_samples_seen_in_detail_in_the_main_thread_change_nothing():
    main = plain(MadeUp(), 0, 0)
    main.span(Stage.FETCH, 2, 8).span(Stage.SAMPLE, 3, 7).span(Stage.DECODE, 4, 6).span(
        Stage.COLLATE, 7, 8
    )
    steps = steps_of(plain(main, 100, 1).process())

    assert {
        name: int(values[0])
        for name, values in steps.stages.items()
        if name in ("wait", "samples", "collate")
    } == {
        "wait": 4,
        "samples": 5,
        "collate": 1,
    }


@pytest.mark.parametrize("other_thread", [1, 2])
def test_other_threads_do_not_take_from_the_step(other_thread):
    main = plain(MadeUp(), 0, 0)
    main.span(Stage.PIN, 40, 60, thread=other_thread)

    assert "pin" not in steps_of(main.process()).stages
