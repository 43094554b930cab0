"""From recorded collectives to the anatomy of a step, and to the link between ranks, whose
bandwidth and latency are known.
"""

from dataclasses import replace

import numpy as np
import pytest
from scaling.made_up import MS, rank

from feedline.analysis.ranks.step_profile import Bucket, ring_between, step_profile
from feedline.analysis.scaling.launch_points import basis_of
from feedline.analysis.traces.collectives import Collectives, ProcessGroup
from feedline.profiler.store.trainings import open_run


def with_small(one: Collectives, ranks: tuple[int, ...], took: int) -> Collectives:
    """The same rank with an all-reduce of 64 bytes in another group, 90 ms into each step."""
    table = one.table.copy()
    table["group"], table["nbytes"], table["start"] = 1, 64, one.steps[:, 0] + 90 * MS
    table["end"] = table["start"] + took
    both = np.concatenate([one.table, table])
    return replace(
        one,
        table=np.sort(both, order="start"),
        groups=[*one.groups, ProcessGroup(f"mesh {ranks}", ranks, "gloo")],
    )


def two(small: dict[int, tuple[int, ...]], took: int) -> list[Collectives]:
    """Two ranks that move 1 MiB within 10 ms of each of eight steps, and 64 bytes in another group."""
    start = np.full((8, 1), 40 * MS)
    return [
        with_small(rank(number, start, start + 10 * MS, 2), ranks, took)
        for number, ranks in small.items()
    ]


def test_the_latency_of_a_ring_is_that_of_small_messages():
    link = ring_between(two({0: (0, 1), 1: (0, 1)}, took=MS))

    assert link is not None and link.alpha_s == pytest.approx(0.5e-3)  # two rounds


def test_a_group_of_one_rank_says_nothing_of_the_link():
    link = ring_between(two({0: (0,), 1: (1,)}, took=5 * MS))

    assert link is not None and (link.alpha_s, link.alpha_from[:2]) == (0.0, "no")
    assert link.bandwidth == pytest.approx((1 << 20) / 10e-3)


def test_the_link_between_more_than_eight_ranks_on_a_host_is_known(synthetic, tmp_path):
    launches = []
    for ranks in (1, 10):
        for number in range(ranks):
            synthetic.write_rank(
                tmp_path / str(ranks), synthetic.Plan(ranks, 8, 4, per_host=ranks), number
            )
        launches.append([open_run(tmp_path / str(ranks))])

    basis = basis_of(launches)

    assert (basis.anatomy is not None, basis.link is not None, basis.why) == (True, True, "")


def test_evaluation_and_what_was_not_kept_is_no_part_of_the_usual_step():
    starts = np.tile(np.array([40, 79]) * MS, (12, 1))
    made = rank(0, starts, starts + MS, 1)
    moved = np.where(np.arange(12) >= 7, 60 * MS, 0)  # by the evaluation with which step 7 begins
    table = made.table.copy()
    table["start"] += np.repeat(moved, 2)
    table["end"] += np.repeat(moved, 2)
    steps = made.steps + np.stack([np.append(0, moved[:-1]), moved], 1)
    made = replace(
        made,
        table=table,
        steps=np.delete(steps, [3, 4], 0),
        evaluation=np.array([[700, 760]]) * MS,
        stages={"backward": made.stages["backward"] + moved[:, None]},
    )

    found = step_profile(made, 0.1)

    assert found.buckets == (Bucket(0.040, 1 << 20), Bucket(0.079, 1 << 20))
    assert found.backward_s == pytest.approx((0.030, 0.080))
    assert found.jitter_s == 0
