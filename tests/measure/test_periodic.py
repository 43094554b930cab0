"""Steps that take longer again and again: with which period, in which stage, and at which line."""

from dataclasses import replace

import pytest
from ledger.test_recorded_ledger import recorded
from measure.made_up_records import MadeUp
from user_code.made_stacks import BACKWARD, LOOP, process, stack

from feedline.analysis.measure.periodic import periodic_stall
from feedline.analysis.measure.rank_metrics import step_summary
from feedline.profiler.events import Flag, Stage

MS = 1_000_000
EVERY, LONGER = 20, 60


def trained(stage: Stage | None = None, steps: int = 200, every: int = EVERY, longer: int = LONGER):
    """Steps of about 10 ms: forward 2, backward 5, update 1; every so many, one of 60 ms more.

    Args:
        stage: where these lie; None: in none.
    """
    run, at, begins = MadeUp(), 0, []
    for step in range(steps):
        begins.append(at)
        at += step * 7919 % 13 * MS // 20  # up to 0.6 ms
        run.forward(at, at + 2 * MS).backward(at + 2 * MS, at + 7 * MS)
        at += 7 * MS
        if every and step % every == 7:
            if stage is not None:
                run.span(stage, at, at + longer * MS)
            at += longer * MS
        run.update(at + 2 * MS, at + 3 * MS)
        at += 3 * MS
    return run, begins


def stalled(run, stacks=()):
    rank = recorded(run, 0, 60_000 * MS)
    step = step_summary(rank)
    return periodic_stall(rank, step.mean_s, step.stages, stacks)


def test_the_period_and_the_stage_are_found():
    run, _ = trained()

    stall = stalled(run)

    assert (stall.period, list(stall.stages)) == (EVERY, ["other"])
    assert 9 <= stall.number <= 10
    assert stall.longer_s == pytest.approx(0.060, rel=0.02)
    assert stall.s == pytest.approx(0.060 / EVERY, rel=0.05)
    assert stall.place == "" and stall.looks == 0


@pytest.mark.parametrize("stage", [Stage.BACKWARD, Stage.COPY])
def test_it_may_lie_in_any_stage_that_no_other_finding_explains(stage):
    run, _ = trained(stage)

    assert list(stalled(run).stages) == [stage.name.lower()]


@pytest.mark.parametrize("stage", [Stage.CHECKPOINT, Stage.COMPILE, Stage.NEXT, Stage.EPOCH])
def test_what_other_findings_explain_is_no_stall(stage):
    run, _ = trained(stage)

    assert stalled(run) is None


def test_garbage_collections_are_no_stall():
    run, begins = trained()
    for step, begin in enumerate(begins):
        if step % EVERY == 7:
            inside = begin + 8 * MS
            run.span(Stage.GARBAGE, inside, inside + (LONGER - 1) * MS, extra=1, number=2)

    assert stalled(run) is None


@pytest.mark.parametrize(
    "changes", [{"every": 0}, {"steps": 100}, {"longer": 3}], ids=["none", "five times", "little"]
)
def test_few_or_short_ones_are_not_told(changes):
    run, _ = trained(**changes)

    assert stalled(run) is None


def test_steps_that_take_longer_at_random_have_no_period():
    run, at = MadeUp(), 0
    for step in range(300):
        long = (step * step * 31 + 17) % 23 == 5
        run.forward(at, at + 2 * MS).backward(at + 2 * MS, at + 7 * MS)
        at += 7 * MS + long * LONGER * MS
        run.update(at + 2 * MS, at + 3 * MS)
        at += 3 * MS

    found = stalled(run)

    assert found is None or found.period == 23  # squares repeat with it


def seen(frames, moments):
    return replace(stack(frames, len(moments)), moments=tuple(moments))


def test_the_line_is_that_which_runs_in_these_steps_alone():
    run, begins = trained()
    flush = [*LOOP[:-1], ("train.py", 75, "main"), ("log.py", 12, "flush")]
    backward = [*LOOP[:-1], ("train.py", 72, "main"), *BACKWARD]
    late = [begin + (9 + 5 * at) * MS for begin in begins[7::EVERY] for at in range(12)]
    usual = [begin + after * MS for begin in begins for after in (3, 6)]

    stall = stalled(run, [process("main", seen(flush, late), seen(backward, usual))])

    assert (stall.function, stall.place) == ("flush", "log.py:12")
    assert stall.place_share > 0.8 and stall.looks > 20


def test_without_samples_in_these_steps_the_line_is_unknown():
    run, begins = trained()
    backward = [*LOOP[:-1], ("train.py", 72, "main"), *BACKWARD]

    stall = stalled(run, [process("main", seen(backward, [begin + 4 * MS for begin in begins]))])

    assert stall.place == ""


def test_a_pass_that_begins_is_no_stall_even_if_more_happens_in_its_step():
    run, begins = trained()
    for step, begin in enumerate(begins):
        if step % EVERY == 7:
            run.span(Stage.NEXT, begin + 8 * MS, begin + 9 * MS, flags=Flag.END)

    assert stalled(run) is None
