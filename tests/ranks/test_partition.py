"""Every nanosecond of a step has one part, and it is the right one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks.made_up import MB, MS, NO_CLOCK, Training, always, messages, train

from feedline.analysis.ranks.aligned_clocks import Alignment, align
from feedline.analysis.ranks.comparison import mean_parts
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.partition import RANK_PARTS, computing_spans
from feedline.analysis.traces.collectives import COLLECTIVE_DTYPE, Collectives, ProcessGroup


def parts_of(ranks, column, bound=None):
    def aligned(ranks, matched):
        found = align(ranks, matched)
        return found if bound is None else replace(found, bound=bound)

    return combine(ranks, aligned).partitions[ranks[column].rank]


def on_one_clock(ranks):
    return combine(
        ranks, lambda ranks, matched: Alignment([NO_CLOCK] * len(ranks), 0.0, "measured", [])
    )


def seconds(part, name, steps=slice(None)):
    return part.parts[name][steps].mean() / 1e9


def test_parts_sum_to_the_step_exactly():
    made = train(
        Training(
            late=always(1, range(3, 9), "forward", 7.3),
            offset={2: 5000.0},
            drift={1: 30.0},
            jitter=0.7,
            unclear=0.2,
        )
    )

    for column in range(4):
        part = parts_of(made.ranks, column)
        assert (sum(part.parts.values()) == made.ranks[column].walls).all()


def test_transfer_is_what_the_link_needs_however_late_a_rank_is():
    for ms in (0.0, 20.0, 80.0):
        made = train(Training(ranks=3, late=always(2, range(30), "wait", ms)))
        part = parts_of(made.ranks, 0)
        transfer = seconds(part, "hidden_transfer") + seconds(part, "exposed_transfer")
        assert abs(transfer * 1e3 - sum(made.transfer_ms)) < 0.1


def test_others_wait_as_long_as_the_late_rank_is_late_and_it_waits_for_nobody():
    made = train(Training(ranks=3, buckets=(4 * MB,), late=always(2, range(30), "wait", 50.0)))

    waits = [seconds(parts_of(made.ranks, column), "exposed_wait") * 1e3 for column in range(3)]

    assert abs(waits[0] - 50) < 0.1 and abs(waits[1] - 50) < 0.1 and waits[2] == 0


def test_waiting_is_blamed_on_the_last_rank():
    made = train(
        Training(late=always(3, range(30), "wait", 50.0) | always(1, range(30), "forward", 20.0))
    )

    part = parts_of(made.ranks, 0)

    assert part.blamed[:, 3].sum() > 0.9 * part.blamed.sum() > 0
    assert (
        part.blamed[:, 3].sum()
        <= part.parts["exposed_wait"].sum() + part.parts["hidden_wait"].sum()
    )


def test_what_the_own_backward_covers_is_hidden():
    made = train(
        Training(ranks=2, buckets=(2 * MB, 2 * MB), backward=30, link=1e9)
    )  # 2 ms each, the first in the middle of backward

    part = parts_of(made.ranks, 0)

    assert (
        abs(seconds(part, "hidden_transfer") * 1e3 - 2) < 0.01
        and abs(seconds(part, "exposed_transfer") * 1e3 - 2) < 0.01
    )


def test_a_backward_that_computes_on_after_its_last_collective_hides_it():
    made = train(Training(ranks=2, buckets=(2 * MB,)))
    one = made.ranks[0]
    longer = one.stages["backward"] + np.array([0, 40 * MS])

    assert (computing_spans(one)[:, 1] < one.stages["backward"][:, 1]).all()
    assert (computing_spans(replace(one, stages={"backward": longer}))[:, 1] == longer[:, 1]).all()


def bucketed(one, bucket=True):
    table = one.table.copy()
    table["bucket"] = bucket
    return replace(one, table=table)


@pytest.mark.parametrize(("copying_ms", "waits"), [(3, True), (40, False)])
def test_a_backward_that_copies_its_last_bucket_into_the_gradients_computed_no_longer(
    copying_ms, waits
):
    one = train(Training(ranks=2, buckets=(10 * MB,), link=1e9)).ranks[0]  # 10 ms
    one = replace(one, stages={"backward": one.stages["backward"] + np.array([0, copying_ms * MS])})

    ends = computing_spans(one)[:, 1]

    assert (ends == (one.table["start"] if waits else one.stages["backward"][:, 1])).all()
    assert (computing_spans(bucketed(one, False))[:, 1] == one.stages["backward"][:, 1]).all(), (
        "of other collectives nobody knows what follows"
    )


def test_transfer_of_the_last_bucket_is_exposed_and_not_hidden():
    made = train(Training(ranks=2, buckets=(10 * MB,), link=1e9))
    ranks = [
        bucketed(replace(one, stages={"backward": one.stages["backward"] + np.array([0, 2 * MS])}))
        for one in made.ranks
    ]

    part = parts_of(ranks, 0)

    assert seconds(part, "hidden_transfer") == 0 and seconds(
        part, "exposed_transfer"
    ) * 1e3 == pytest.approx(10, abs=0.1)


def test_where_the_recorder_saw_the_wait_it_is_not_computing():
    one = train(Training(ranks=2)).ranks[0]
    blocked = one.stages["backward"][:, 1:] - np.array([[3 * MS, 1 * MS]])

    spans = computing_spans(replace(one, stages=one.stages | {"blocked": blocked}))

    assert (spans[:, 1] - spans[:, 0]).sum() == (np.diff(one.stages["backward"]) - 2 * MS).sum()


def test_nothing_is_claimed_below_the_clock_bound():
    made = train(Training(ranks=3, late=always(2, range(30), "wait", 4.0)))

    part = parts_of(made.ranks, 0, bound=5 * MS)

    assert (
        part.parts["exposed_wait"].sum()
        == part.parts["hidden_wait"].sum()
        == part.blamed.sum()
        == 0
    )


def test_without_a_common_clock_there_is_no_waiting():
    made = train(Training(ranks=2, late=always(1, range(30), "wait", 40.0)))

    part = parts_of(made.ranks, 0, bound=float("inf"))

    assert part.parts["exposed_wait"].sum() == 0 and part.parts["exposed_transfer"].sum() > 0
    assert not part.met


def test_what_a_rank_waits_is_unknown_where_it_never_met_another():
    made = train(Training(ranks=2, late=always(1, range(30), "wait", 40.0)))
    table = made.ranks[1].table.copy()
    table["group"] = 1
    apart = replace(
        made.ranks[1],
        table=table,
        groups=[*made.ranks[1].groups, ProcessGroup("of its own", (1,), "gloo")],
    )

    alone, together = (
        mean_parts(parts_of(ranks, 0), 0) for ranks in ([made.ranks[0], apart], made.ranks)
    )

    assert (alone.hidden_wait_s, alone.exposed_wait_s, alone.queue_s) == (None, None, None)
    assert alone.exposed_transfer_s > 0 and together.exposed_wait_s > 0


def test_an_end_that_nobody_could_tell_is_counted_and_not_guessed():
    made = train(Training(ranks=2))
    table = made.ranks[0].table.copy()
    table["end"][7] = -1
    part = parts_of([replace(made.ranks[0], table=table), made.ranks[1]], 0)

    assert part.unended == 1 and np.isnan(part.moving[7])
    assert (sum(part.parts.values()) == made.ranks[0].walls).all()


def test_a_collective_behind_one_that_waits_stands_in_a_queue():
    """A two-rank group inside three ranks: on rank 1, its second collective cannot run before the
    first, which waits for rank 0's slot.
    """
    pair, rows = ProcessGroup("p", (0, 1), "nccl"), [[(0, 90), (10, 100)], [(0, 10), (10, 100)]]
    ranks = []
    for rank, spans in enumerate(rows):
        table = np.zeros(2, COLLECTIVE_DTYPE)
        table["start"], table["end"] = zip(*spans, strict=True)
        table["sequence"] = (0, 1)
        ranks.append(
            Collectives(
                rank, "a", table, [pair], ["all_reduce"], [], np.array([[0, 200]]), {}, NO_CLOCK
            )
        )

    part = on_one_clock(ranks).partitions[1]

    assert (
        part.parts["queue"][0] == 80 and part.parts["exposed_transfer"][0] == 20
    )  # until rank 0 is done with the first, at 90


def test_a_late_receiver_makes_the_sender_wait_and_the_bytes_move_after_it():
    sender, receiver = (
        parts_of(messages([0, 200], [20, 220], [104, 304], 84 * MB), column) for column in range(2)
    )

    assert (sender.parts["exposed_wait"].sum(), sender.parts["exposed_transfer"].sum()) == (
        40 * MS,
        168 * MS,
    )
    assert (receiver.parts["exposed_wait"].sum(), receiver.parts["exposed_transfer"].sum()) == (
        0,
        168 * MS,
    )
    assert sender.blamed.tolist() == [[0, 40 * MS]]


def test_a_receiver_that_comes_after_the_sender_is_done_was_not_waited_for():
    sender, receiver = (parts_of(messages([0], [20], [5], 1000), column) for column in range(2))

    assert sender.parts["exposed_wait"].sum() == receiver.parts["exposed_wait"].sum() == 0
    assert (sender.parts["exposed_transfer"].sum(), receiver.parts["exposed_transfer"].sum()) == (
        5 * MS,
        MS,
    )


collective = st.tuples(st.integers(0, 60), st.integers(1, 40))


@st.composite
def any_ranks(draw):
    count = draw(st.integers(2, 4))
    many = draw(st.integers(0, 6))
    ranks = []
    starts = [
        sorted(draw(st.lists(st.integers(0, 80), min_size=many, max_size=many)))
        for _ in range(count)
    ]
    ends = [max(column) + draw(st.integers(0, 25)) for column in zip(*starts, strict=True)]
    for rank in range(count):
        table = np.zeros(many, COLLECTIVE_DTYPE)
        table["start"], table["end"] = starts[rank], [end + draw(st.integers(0, 3)) for end in ends]
        table["sequence"] = np.arange(many)
        lost = draw(st.sets(st.integers(0, many - 1), max_size=2)) if many else set()
        table["end"][list(lost)] = -1
        a, b = sorted((draw(st.integers(0, 100)), draw(st.integers(0, 100))))
        edges = sorted(draw(st.sets(st.integers(0, 110), min_size=2, max_size=5)))
        kept = draw(st.sets(st.integers(0, len(edges) - 2), min_size=1))
        steps = np.stack([edges[:-1], edges[1:]], 1)[sorted(kept)]
        evaluation = np.array(
            sorted(draw(st.sets(st.integers(0, 110), min_size=2, max_size=4)))[:2]
        ).reshape(1, 2)
        backend = (
            draw(st.sampled_from(["gloo", "nccl"])) if rank == 0 else ranks[0].groups[0].backend
        )
        group = ProcessGroup("0", tuple(range(count)), backend)
        ranks.append(Collectives(rank, "a", table, [group], ["all_reduce"], [], steps, {"blocked": np.zeros((0, 2), np.int64),
                                 "backward": np.array([[a, b]])}, NO_CLOCK, evaluation=evaluation))  # fmt: skip
    return ranks


def slow(one, column, matched, met, slots):
    """The same partition, nanosecond by nanosecond."""
    counts = {name: np.zeros(len(one.steps), int) for name in RANK_PARTS}
    for step, now in [
        (step, now) for step, (start, end) in enumerate(one.steps) for now in range(start, end)
    ]:
        if any(start <= now < end for start, end in one.evaluation):
            continue
        states = set()
        for index in range(len(one.table)):
            start, end = one.table["start"][index], one.table["end"][index]
            if not start <= now < end:
                continue
            others = range(len(matched.ranks))
            begun = all(met.start[index, rank] <= now for rank in others)
            slot = all(
                sum(met.end[before, rank] > now for before in range(index)) < slots
                for rank in others
            )
            slot = slot or now >= min(end, met.free[index])
            states.add("move" if begun and slot else "queue" if begun else "wait")
        covered = any(a <= now < b for a, b in one.stages["backward"])
        side = "hidden" if covered else "exposed"
        kind = (
            f"{side}_transfer"
            if "move" in states
            else "queue"
            if "queue" in states
            else f"{side}_wait"
            if states
            else "compute"
        )
        counts[kind][step] += 1
    return counts


@settings(max_examples=60, deadline=None)
@given(any_ranks())
def test_the_sweep_is_what_a_look_at_each_nanosecond_finds(ranks):
    together = on_one_clock(ranks)
    slots = 2 if ranks[0].groups[0].backend == "gloo" else 1

    for column, one in enumerate(ranks):
        part = together.partitions[column]
        assert (sum(part.parts.values()) == one.walls).all()
        assert sum(part.exposed.values(), np.zeros(len(one.steps))) == pytest.approx(
            part.parts["exposed_transfer"]
        )
        expected = slow(one, column, together.matched, together.met, slots)
        assert {name: values.tolist() for name, values in part.parts.items()} == {
            name: values.tolist() for name, values in expected.items()
        }
