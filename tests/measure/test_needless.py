"""Forwards nobody learns from, padding and denormal numbers, from records that were made up."""

import os

import numpy as np
import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.needless import (
    _is_overwritten,
    denormal,
    dropped_forwards,
    one_by_one,
    padding,
)
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import DENORMAL, PADDING, Flag, Stage

MS = 1_000_000


@pytest.mark.parametrize(("number", "seen"), [(10, True), (8, True), (7, False), (0, False)])
def test_what_is_dropped_in_most_looks_is_dropped_in_each_step(number, seen):
    run = MadeUp()
    for look in range(10):
        gone = look < number
        run.span(Stage.DROPPED, look, look + 5 * MS * gone, nbytes=2, extra=int(gone))
    found = dropped_forwards(run.process(), SourceLines())

    assert (found is not None) is seen
    if found:
        assert (found.seconds, found.looks, found.unused) == (pytest.approx(5e-3), 10, False)


LOOP = """
for x, y in loader:
    {call}
    optimizer.zero_grad()
    {after}
    loss.backward()
"""


@pytest.mark.parametrize(
    ("call", "after", "unused"),
    [
        ("loss = model(x, y)", "loss = model(x, y)", True),
        ("loss = model(x, y)['loss']", "loss = model(x, y)['loss']", True),
        ("loss = model(x)", "loss = loss + model(y)", False),
        ("loss = model(x)", "loss += model(y)", False),
        ("loss = model(x)", "print(loss)", False),
        ("loss = model(x)", "log(loss)", False),
        ("base = model(x)", "loss = model(x) - base.detach()", False),
        ("base, more = model(x)", "loss = base", False),
        ("model(x)", "loss = model(x)", False),
    ],
)
def test_a_result_that_is_assigned_anew_before_it_is_read_is_unused(tmp_path, call, after, unused):
    file = tmp_path / "train.py"
    file.write_text(LOOP.format(call=call, after=after))
    os.utime(file, (1e9, 1e9))

    assert _is_overwritten(f"{file}:3", SourceLines(2e9)) is unused


@pytest.mark.parametrize(
    ("condition", "unused"),
    [("if first:\n        loss = model(x)", True), ("if loss > 0: pass", False)],
)
def test_a_condition_may_read_it(tmp_path, condition, unused):
    file = tmp_path / "train.py"
    call = condition if unused else f"loss = model(x)\n    {condition}"
    file.write_text(LOOP.format(call=call, after="loss = model(x)"))
    os.utime(file, (1e9, 1e9))

    assert _is_overwritten(f"{file}:{4 if unused else 3}", SourceLines(2e9)) is unused


def looked(kind, *looks):
    run = MadeUp()
    run.names[7] = kind
    for at, values, needless in looks:
        run.span(Stage.CONTENTS, at, at, nbytes=values, extra=needless, source=7)
    return run


def test_padding_is_the_share_of_all_values_that_were_looked_at():
    looks = [(at, 1000, 600) for at in range(4)] + [(9, 1000, 0)]
    found = padding(looked(PADDING, *looks).process())

    assert (found.needless, found.looks) == (pytest.approx(0.48), 5)
    assert padding(looked(PADDING, *looks[:4]).process()) is None


def slowing(slow_ms, *looks):
    """60 steps of 10 ms, and then 40 of so many."""
    run, at = looked(DENORMAL), 0
    for step in range(100):
        took = (10 if step < 60 else slow_ms) * MS
        for updates, needless in looks:
            if updates == step:
                run.span(Stage.CONTENTS, at, at, nbytes=100, extra=needless, number=step, source=7)
        run.forward(at, at + took // 2).backward(at + took // 2, at + took - 10)
        run.update(at + took - 10, at + took)
        at += took
    main = run.process()
    steps = steps_of(main)
    return denormal(main, steps.start, steps.wall, 100)


NONE_YET = [(3, 0), (5, 0), (9, 0), (20, 0), (55, 0)]


@pytest.mark.parametrize(("slow_ms", "longer"), [(30, 8 / 18), (11, None)])
def test_steps_since_there_are_denormal_numbers_are_compared_with_those_before(slow_ms, longer):
    found = slowing(slow_ms, *NONE_YET, (65, 60), (90, 0))

    assert (found.most, found.looks, found.seen) == (0.6, 7, 1)
    assert found.longer == (pytest.approx(longer, rel=0.1) if longer else None)


def test_without_looks_before_them_nothing_can_be_compared():
    assert slowing(30, (3, 60), (65, 60)).longer is None


def test_without_denormal_numbers_nothing_is_said():
    main = looked(DENORMAL, (0, 100, 0), (1, 1000, 9)).process()

    none = np.zeros(0, np.int64)
    assert denormal(main, none, none, 9) is None


def calling(calls, samples, batches=1, flags=Flag.TRAINING | Flag.GRAD, last=None):
    """20 steps, in each of which a model is called so often for a batch of so many samples."""
    usual = (calls, samples)
    run, at = MadeUp(), 0
    run.names[3] = "train.py:20"
    run.span(Stage.KEPT, 0, 0, source=3)
    for step in range(20):
        calls, samples = last if last and step == 19 else usual
        for batch in range(batches):
            run.next(at, at + MS, batch=step * batches + batch, samples=samples // batches)
            at += MS
        for _ in range(calls):
            run.span(Stage.FORWARD, at, at + MS, flags=int(flags))
            at += MS
        run.backward(at, at + MS).update(at + MS, at + 2 * MS)
        at += 2 * MS
    main = run.process()
    steps = steps_of(main)
    assert steps is not None
    return one_by_one(main, steps)


@pytest.mark.parametrize("last", [32, 8])
def test_a_model_that_is_called_as_often_as_a_batch_has_samples_is_called_for_each(last):
    found = calling(32, 32, last=(last, last))

    assert (found.calls, found.samples, found.place) == (32, 32, "train.py:20")
    assert found.seconds == pytest.approx((19 * 32 + last) / 20 * 1e-3)


@pytest.mark.parametrize(
    "given",
    [
        {"calls": 1, "samples": 32},
        {"calls": 16, "samples": 32},
        {"calls": 30, "samples": 32},
        {"calls": 32, "samples": 32, "last": (32, 8)},
        {"calls": 4, "samples": 4},
        {"calls": 32, "samples": 32, "batches": 2},
        {"calls": 32, "samples": 32, "flags": Flag.TRAINING},
    ],
    ids=[
        "once",
        "half as often",
        "nearly",
        "as often for fewer",
        "few",
        "accumulated",
        "without gradients",
    ],
)
def test_a_model_that_is_called_otherwise_is_not(given):
    assert calling(**given) is None
