"""From made-up records to the columns that the analysis of communication reads."""

from dataclasses import replace

import numpy as np
import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.ranks.comparison import NO_HINTS, compare_recorded
from feedline.analysis.ranks.read_collectives import clock_of, collectives_of
from feedline.analysis.traces.collectives import PHASES
from feedline.profiler.events import Flag, Stage
from feedline.profiler.message import OTHER_LIBRARY
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank

NAMES = {1: "all_reduce", 2: "world", 3: "gloo", 4: "float32", 5: "host-1"}


def rank_of(made, tmp_path, hooks=()):
    made.names = NAMES
    rank = Rank(rank_folder(tmp_path, 1), 1, 0, Manifest(hooks=list(hooks)), [])
    rank.__dict__["processes"] = [made.process()]
    return rank


def with_group(*runs):
    made = MadeUp()
    for first, step, count in runs:
        made.span(Stage.GROUP, 0, 0, source=2, cpu=3, number=first, extra=step, nbytes=count)
    return made


def collective(made, start, end, number=0, **fields):
    return made.span(
        Stage.COLLECTIVE,
        start,
        end,
        source=1,
        cpu=2,
        runqueue=4,
        nbytes=40,
        number=number,
        **fields,
    )


def step(made, start):
    made.next(start, start + 10, batch=start // 100).forward(start + 10, start + 30).backward(
        start + 30, start + 70
    )
    return made.update(start + 70, start + 80)


def test_a_rank_without_collectives_has_none(tmp_path):
    assert collectives_of(rank_of(step(MadeUp(), 100), tmp_path)) is None


def test_the_phase_is_what_the_main_thread_was_doing(tmp_path):
    made = step(step(with_group((0, 1, 2)), 100), 200)
    for number, time in enumerate([50, 105, 120, 140, 175, 190]):
        collective(made, time, time + 1, number)

    found = collectives_of(rank_of(made, tmp_path))

    assert [PHASES[one] for one in found.table["phase"]] == [
        "init",
        "loader",
        "forward",
        "backward",
        "optimizer",
        "other",
    ]


def test_a_collective_without_an_end_says_so(tmp_path):
    made = collective(with_group((0, 1, 2)), 10, 9)

    assert collectives_of(rank_of(made, tmp_path)).table["end"].tolist() == [-1]


@pytest.mark.parametrize(
    ("silent_s", "quiet"),
    [(1.0, False), (20.0, False), (40.0, True)],
    ids=["a moment", "less than a save took", "long"],
)
def test_a_rank_is_quiet_once_nothing_came_for_much_longer_than_ever(tmp_path, silent_s, quiet):
    made, begin, second = with_group((0, 1, 2)), 0, 1_000_000_000
    for number in range(20):  # with a save of 10 s
        begin += 10 * second if number == 15 else second // 2
        collective(made, begin, begin + 10, number)
    collective(made, begin + 20, begin + 19, number=20)
    for late in range(1, 40):  # looks at a thread that stands still, the clock
        made.span(Stage.LOOK, begin + late * second, begin + late * second, source=1)
    rank = rank_of(made, tmp_path)
    present = begin + round(silent_s * second)
    rank.manifest.anchors.append({"perf_counter_ns": 0, "time_ns": 5 * second})
    rank.manifest.read_ns = present + 5 * second

    found = collectives_of(rank)

    assert found.quiet is quiet
    assert replace(found, live=True).moves is not quiet


def test_the_buckets_of_distributed_data_parallel_are_marked(tmp_path):
    made = collective(with_group((0, 1, 2)), 10, 20)
    collective(made, 30, 40, number=1, flags=Flag.BUCKET)

    assert collectives_of(rank_of(made, tmp_path)).table["bucket"].tolist() == [False, True]


def test_on_a_gpu_it_starts_when_the_gpu_came_to_it(tmp_path):
    made = collective(with_group((0, 1, 2)), 10, 110, extra=30)
    found = collectives_of(rank_of(made, tmp_path)).table

    assert (found["start"].tolist(), found["end"].tolist()) == ([40], [110])


def test_ranks_of_a_group_that_is_no_sequence_are_put_together_again(tmp_path):
    made = collective(with_group((0, 2, 3), (7, 1, 1), (20, 10, 2)), 10, 20)

    (group,) = collectives_of(rank_of(made, tmp_path)).groups
    assert (group.name, group.ranks, group.backend) == ("world", (0, 2, 4, 7, 20, 30), "gloo")


def test_steps_end_where_the_last_one_does(tmp_path):
    made = collective(step(step(with_group((0, 1, 2)), 100), 200), 150, 160)

    assert collectives_of(rank_of(made, tmp_path)).steps.tolist() == [[100, 200], [200, 280]]


def test_evaluation_and_forgotten_windows_are_in_no_step(tmp_path):
    made = collective(step(step(with_group((0, 1, 2)), 100), 200), 150, 160)
    made.next(290, 300, loader=1).forward(
        300, 390, grad=False
    )  # evaluation, until the training goes on
    step(step(step(made, 400), 600), 700)
    main = made.process()
    main.records["window"][main.records["start"] >= 600] = 2
    main.totals[0, 0] = 1
    rank = rank_of(made, tmp_path)
    rank.__dict__["processes"] = [main]

    found = collectives_of(rank)

    assert (found.steps.tolist(), found.stride) == ([[100, 200], [200, 400], [700, 780]], 2)
    assert found.walls.tolist() == [100, 90, 80]
    assert found.step_at(np.array([99, 250, 350, 399, 400, 550, 700, 780])).tolist() == [
        -1,
        1,
        -1,
        -1,
        -1,
        -1,
        2,
        -1,
    ]


def test_a_hook_that_could_not_attach_is_named(tmp_path):
    hooks = [
        {
            "name": "communication by Horovod",
            "attached": False,
            "why": "not seen",
            "reason": OTHER_LIBRARY,
        },
        {"name": "DALI", "attached": False, "why": "something else"},
        {"name": "clocks", "attached": False, "why": "rank 0 did not answer"},
    ]
    found = collectives_of(rank_of(collective(with_group((0, 1, 2)), 10, 20), tmp_path, hooks))

    assert found.unseen == ["communication by Horovod: not seen"]


def test_a_library_that_no_tap_sees_is_named_with_the_time_that_no_stage_explains(tmp_path):
    hooks = [
        {
            "name": "communication by Horovod",
            "attached": False,
            "why": "not seen",
            "reason": OTHER_LIBRARY,
        }
    ]
    ranks = {
        1: rank_of(step(step(MadeUp(), 100), 200), tmp_path, hooks),
        2: rank_of(step(MadeUp(), 100), tmp_path),
    }
    gathered = {number: RankMetrics.of(rank) for number, rank in ranks.items()}
    notes = []

    assert compare_recorded(gathered, gathered[1], None, NO_HINTS, notes, {}) is None

    assert (
        "communication by Horovod: not seen; no stage explains 11.1 % of the mean step" in notes
    )  # 20 of 180 ns


def clock(*notes):
    made = MadeUp()
    for at, offset, round_trip in notes:
        made.span(Stage.CLOCK, at, at, number=offset, extra=round_trip, source=5)
    made.names = NAMES
    return made.process()


def test_a_clock_that_was_never_measured_has_no_bound():
    found, host = clock_of(clock(), 100)

    assert (found.bound, host) == (np.inf, "unknown")
    assert found.to_reference(np.array([5])).tolist() == [5]


def test_the_bound_is_half_the_round_trip():
    found, host = clock_of(clock((0, 1000, 60), (100, 1000, 40)), 100)

    assert (found.bound, host) == (30.0, "host-1")


def test_a_measurement_that_was_held_up_is_left_out():
    found, _ = clock_of(clock((0, 1000, 60), (100, 1000, 60), (200, 9000, 60_000)), 200)

    assert (found.bound, found.offset.tolist()) == (30.0, [1000, 1000])


def test_drift_between_measurements_is_a_line_and_goes_on_to_the_end():
    found, _ = clock_of(clock((0, 0, 60), (1_000_000, 100, 60)), 1_500_000)

    assert found.to_reference(np.array([500_000, 1_500_000])).tolist() == [500_050, 1_500_150]


@pytest.mark.parametrize("offset", [5_000_000_000, -5_000_000_000])
def test_clocks_that_are_off_by_seconds_are_put_right(offset):
    found, _ = clock_of(clock((0, offset, 60), (1000, offset, 60)), 1000)

    assert found.to_reference(np.array([500])).tolist() == [500 + offset]
