"""The ledger of stored and made-up recordings closes, and its rows are what the records say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.record import RUNS
from hypothesis import given
from hypothesis import strategies as st
from measure.made_up_records import MadeUp
from user_code.made_stacks import FORWARD, LOOP, stack
from user_code.made_stacks import training as sampled

import feedline
from feedline.analysis.explain.measured import gather_ranks
from feedline.analysis.ledger.recorded_ledger import _run_table, ledger_of
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.rank_metrics import RankMetrics, step_summary
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.analysis.ranks.communication import ExposedKind, RankParts
from feedline.profiler.events import Stage
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.record_columns import RECORD_DTYPE
from feedline.profiler.store.run_folder import Rank, Slice

STORED = sorted(manifest.parent.parent for manifest in RUNS.rglob("rank0/manifest.json"))
SECOND = 1_000_000_000


def recorded(main: MadeUp, begin: int, end: int, stride: int = 1) -> RankMetrics:
    """A rank with these records, recorded from begin to end; one window in ``stride`` was kept."""
    anchors = [{"time_ns": at, "perf_counter_ns": at} for at in (begin, end)]
    return RankMetrics.of(
        Rank(
            Path("nowhere"),
            0,
            0,
            Manifest(anchors=anchors, ended=True),
            [],
            Slice(begin, end, [main.process(stride)]),
        )
    )


def training(steps: int, at: int = 0, pause: int = 0) -> MadeUp:
    """Steps of 100 ns: wait 10, forward 20, loss 5, backward 30, update 10, logging 25; a
    checkpoint of ``pause`` in each second one.
    """
    main = MadeUp()
    for batch in range(steps):
        main.next(at, at + 10, batch).forward(at + 10, at + 30).backward(at + 35, at + 65).update(
            at + 65, at + 75
        )
        if pause and batch % 2:
            main.span(Stage.CHECKPOINT, at + 80, at + 80 + pause)
            at += pause
        at += 100
    return main


@pytest.mark.parametrize("place", STORED, ids=lambda place: str(place.relative_to(RUNS)))
def test_both_tables_of_every_stored_run_close(place):
    for rank in (
        rank
        for loaded in feedline.load_all(place)
        for rank in gather_ranks(loaded._run, []).values()
    ):
        step = step_summary(rank)
        if step is None:
            continue
        ledger = ledger_of(rank, step, rank.sample_costs)

        assert ledger.step.closes and ledger.step.whole_s == step.mean_s
        for stage, seconds in step.stages.items():
            assert ledger.step.total_s(stage) == pytest.approx(max(seconds, 0.0))
        assert all(table.closes for table in (ledger.run, ledger.sample) if table is not None)


def test_a_run_is_split_into_its_start_its_steps_and_its_end():
    table = _run_table(recorded(training(4, at=1000), begin=0, end=2000))

    assert table is not None and table.closes
    ns = {row.where: round(row.s * SECOND) for row in table.rows}
    assert ns["start"] == 1000 and ns["end"] == 2000 - 1375  # the last step ends with its update
    assert sum(value for where, value in ns.items() if where.startswith("steps/")) == 375
    assert ns["steps/backward"] == 120 and ns["steps/wait"] == 40


def test_evaluation_is_a_row_of_its_own_and_not_of_the_steps():
    main = training(4)
    main.next(400, 440, 0, loader=1).forward(440, 500, grad=False).next(
        500, 510, 1, loader=1
    ).forward(510, 600, grad=False)
    for batch in range(4, 8):
        at = 600 + 100 * (batch - 4)
        main.next(at, at + 10, batch).forward(at + 10, at + 30).backward(at + 35, at + 65).update(
            at + 65, at + 75
        )

    table = _run_table(recorded(main, begin=0, end=1000))

    assert table is not None and table.closes
    assert round(table.total_s("evaluation") * SECOND) == 200
    assert round(table.total_s("steps") * SECOND) == 775


def test_a_stage_of_few_steps_says_in_how_many_and_whether_it_grows():
    rank = recorded(training(43, pause=50), 0, 10_000)
    step = step_summary(rank)
    assert step is not None

    row = ledger_of(rank, step).step.row("checkpoint")

    assert (
        row is not None
        and row.steps == pytest.approx(0.5, abs=0.02)
        and row.trend == pytest.approx(1.0, abs=0.1)
    )


def test_functions_are_rows_below_the_stages_that_hold_them():
    rank = recorded(training(8), 0, 1000)
    step = step_summary(rank)
    assert step is not None
    own = OwnCode(
        step.stages["other"],
        9,
        [OwnFunction("log (train.py:9)", step.stages["other"] / 2, 0.0, 1.0, "")],
    )
    object.__setattr__(step, "own_code", own)

    table = ledger_of(rank, step).step

    row = table.row("other/user/log")
    assert row is not None and row.place == "train.py:9"
    assert row.s == pytest.approx(table.total_s("other") / 2) and table.closes


@given(
    steps=st.integers(2, 12),
    before=st.integers(0, 10_000),
    after=st.integers(0, 10_000),
    pause=st.integers(0, 500),
)
def test_a_run_closes_whatever_lies_around_its_steps(steps, before, after, pause):
    main = training(steps, at=before, pause=pause)
    last = max(start + wall for start, wall in ((row[0], row[1]) for row in main.rows))

    table = _run_table(recorded(main, 0, last + after))

    assert table is not None and table.closes
    assert all(row.s > 0 for row in table.rows)


@given(
    called_s=st.floats(0, 60e-9),
    sent_s=st.floats(0, 60e-9),
    gathered_s=st.floats(0, 60e-9),
    late_s=st.floats(0, 60e-9),
)
def test_a_step_closes_whatever_its_functions_communicate(called_s, sent_s, gathered_s, late_s):
    rank = recorded(training(8), 0, 1000)
    step = step_summary(rank)
    function = OwnFunction("average_gradients (train.py:9)", called_s, 0.0, 1.0, "")
    step = replace(step, own_code=OwnCode(step.stages["other"], 9, [function]))
    code = SampledCode.of([sampled(stack([*LOOP, *FORWARD, ("net.py", 9, "forward")], 300))])
    kinds = [
        ExposedKind("all_reduce", "other", sent_s),
        ExposedKind("all_gather", "forward", gathered_s),
    ]
    parts = RankParts(0.0, 0.0, sent_s + gathered_s, 0.0, late_s, 0.0)

    table = ledger_of(rank, step, None, parts, kinds, code).step

    assert table.closes
    assert table.total_s("other/comm/transfer") == pytest.approx(min(sent_s, step.stages["other"]))


def test_how_often_a_stage_comes_is_the_steps_from_one_to_the_next():
    rank = recorded(training(40, pause=50), 0, 10_000)
    step = step_summary(rank)
    table = ledger_of(rank, step).step

    assert table.row("checkpoint").period == 2
    assert table.row("forward").period == 1


def test_how_often_a_stage_comes_is_not_counted_over_forgotten_windows():
    main = training(160, pause=50)
    rows = np.array(main.rows, RECORD_DTYPE)
    rows["window"] = rows["start"] // 625  # ns: five steps, of which two or three save
    main.rows = rows.tolist()
    rank = recorded(main, 0, 20_000, stride=4)
    step = step_summary(rank)

    row = ledger_of(rank, step).step.row("checkpoint")

    assert row.period is None and row.steps == pytest.approx(0.5, abs=0.15)


def test_steps_that_were_only_counted_lack_what_is_always_told():
    """Twenty windows of two steps, of which the second saves, with 18 counted steps after each."""
    main, at = MadeUp(), 0
    for window in range(20):
        for saves in (False, True):
            main.next(at, at + 10, window).forward(at + 10, at + 30).backward(at + 35, at + 65)
            main.update(at + 65, at + 75)
            if saves:
                main.span(Stage.CHECKPOINT, at + 80, at + 130)
            at += 150 if saves else 100
        main.span(Stage.REST, at, at + 18 * 100, extra=18)
        at += 18 * 100
    rank = recorded(main, 0, at)
    step = step_summary(rank)
    row = ledger_of(rank, step).step.row("checkpoint")

    assert row.steps == pytest.approx(1 / 20, rel=0.1) and row.period == 20
    assert row.s / row.steps == pytest.approx(50e-9, rel=0.1)
