"""Garbage collections as parts of the stages that they run in."""

from dataclasses import replace

import pytest
from ledger.test_recorded_ledger import recorded
from measure.made_up_records import MadeUp

from feedline.analysis.ledger.table import step_rows
from feedline.analysis.measure.garbage import long_collections
from feedline.analysis.measure.rank_metrics import step_summary
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Stage

MS = 1_000_000


def trained(*collections, steps=10):
    """Steps of 10 ms: forward 2, backward 5, update 1, and nothing recorded for 2.

    Args:
        collections: (step, ms after its begin, ms, fields).
    """
    run = MadeUp()
    for step in range(steps):
        begin = step * 10 * MS
        run.forward(begin, begin + 2 * MS).backward(begin + 2 * MS, begin + 7 * MS)
        run.update(begin + 9 * MS, begin + 10 * MS)
    for step, after, took, fields in collections:
        begin = int((step * 10 + after) * MS)
        given = {"extra": 1, "number": 2, **fields}
        run.span(Stage.GARBAGE, begin, begin + int(took * MS), **given)
    run.names[7] = "train.py:12"
    return run


def by_stage(run):
    return {name: ns.sum() / MS for name, ns in steps_of(run.process()).collecting.items()}


def test_each_collection_belongs_to_the_stage_that_it_runs_in():
    main = trained((3, 0.5, 1, {}), (4, 3, 2, {}), (5, 7.5, 1.25, {}))

    assert by_stage(main) == {"forward": 1, "backward": 2, "other": 1.25}


def test_short_collections_count_with_their_sum():
    assert by_stage(trained((3, 3, 1.5, {"extra": 12}))) == {"backward": 1.5}


def test_collections_in_other_threads_and_after_the_steps_do_not_count():
    main = trained((3, 3, 1, {"thread": 1}), (200, 0, 5, {}), (9, 8, 0, {"extra": 0}))

    assert by_stage(main) == {}
    own = trained((3, 3, 1, {}), (4, 3, 1, {"extra": 9})).process()
    assert len(long_collections(own)) == 1


def test_rows_still_sum_to_the_step():
    each = [(step, 7.2, 1.2, {"nbytes": 1, "source": 7}) for step in range(1, 10)]
    run = trained(*each, (5, 3, 2, {}))
    step = step_summary(recorded(run, 0, 100 * MS))

    rows = step_rows(step)

    assert sum(row.s for row in rows) == pytest.approx(step.mean_s)
    assert {row.where for row in rows if row.where.endswith("/gc")} == {"other/gc", "backward/gc"}
    assert step.garbage.called_at == "train.py:12"
    assert step.garbage.called_share == pytest.approx(10.8 / 12.8)
    assert step.garbage.steps_share == 1.0 and step.garbage.longest_s == pytest.approx(2e-3)


def test_functions_that_collect_leave_room_for_it():
    run = trained(*((step, 7.2, 1.8, {}) for step in range(1, 10)))
    step = step_summary(recorded(run, 0, 100 * MS))
    own = OwnCode(2e-3, 9, [OwnFunction("tidy (train.py:3)", 1.9e-3, 1.8e-3, 2e-3, "")])

    rows = step_rows(replace(step, own_code=own))

    assert sum(row.s for row in rows) == pytest.approx(step.mean_s)
    by_name = {row.where: row.s for row in rows}
    assert by_name["other/gc"] == pytest.approx(1.8e-3)
    assert by_name["other/user/tidy"] == pytest.approx(0.2e-3)
