"""Ranks are matched by group and number, and what does not belong together is named."""

from dataclasses import replace

import numpy as np
import pytest
from ranks.made_up import BOOT, MB, MS, Training, always, messages, train, with_table

from feedline.analysis.ranks.aligned_clocks import align
from feedline.analysis.ranks.match import MISSING, generations, match
from feedline.analysis.traces.collectives import ProcessGroup


def test_clocks_years_apart_do_not_disturb_the_matching():
    made = train(Training(ranks=3, steps=5, offset={1: 4e9, 2: -9e9}))

    matched = match(made.ranks)

    assert len(matched.group) == 15 and matched.complete.all()
    assert (np.diff(matched.start - matched.start[:1], axis=1) == 0).all()


def test_groups_and_names_may_be_listed_in_another_order_on_each_rank():
    first, second = train(Training(ranks=2, steps=3)).ranks
    table = second.table.copy()
    table["group"], table["name"] = 1, 1
    second = replace(
        second,
        table=table,
        groups=[ProcessGroup("other", (1,), "gloo"), *second.groups],
        names=["barrier", *second.names],
    )

    assert match([first, second]).complete.all()


def test_a_group_made_again_under_the_same_name_is_another_one():
    first, second = train(Training(ranks=2, steps=4)).ranks
    tables = [one.table.copy() for one in (first, second)]
    for table in tables:
        table["sequence"] %= 6

    matched = match(
        [with_table(one, table) for one, table in zip((first, second), tables, strict=True)]
    )

    assert len(matched.group) == 12 and matched.complete.all()


@pytest.mark.parametrize(
    ("numbers", "generation"),
    [
        ([0, 1, 2, 0, 1, 2, 0], [0, 0, 0, 1, 1, 1, 2]),
        ([1, 0, 2, 1, 0], [0, 0, 0, 1, 1]),
        ([0, 1, 2, 1, 2], [0, 0, 0, 1, 1]),
        ([0, 1, 3, 0, 1, 2, 3], [0, 0, 0, 1, 1, 1, 1]),  # a run that forgot a window
        ([5, 5, 5], [0, 1, 2]),
        ([], []),
    ],
)
def test_a_group_begins_anew_with_a_number_that_was_there_before(numbers, generation):
    assert generations(np.array(numbers, np.int64)).tolist() == generation


def test_neighbors_swapped_on_one_rank_still_match():
    first, second = train(Training(ranks=2, steps=4, buckets=(MB, MB))).ranks
    table = second.table.copy()
    table["sequence"][[0, 1]] = table["sequence"][[1, 0]]

    assert match([first, with_table(second, table)]).complete.all()


def test_sends_within_a_group_do_not_make_its_collectives_begin_anew():
    first, second = train(Training(ranks=2, steps=4)).ranks
    sent = second.table[:3].copy()
    sent["name"], sent["start"] = len(second.names), second.table["start"][[3, 6, 9]] + 1
    table = np.sort(np.concatenate([second.table, sent]), order="start")

    assert match(
        [first, replace(second, table=table, names=[*second.names, "send"])]
    ).complete.all()


def test_a_rank_without_records_is_named():
    made = train(Training(ranks=4, steps=5))

    matched = match(made.ranks[:2] + made.ranks[3:])

    assert not matched.complete.any()
    assert any("rank 2 left no records" in note for note in matched.notes)


def test_a_rank_killed_in_the_middle_of_a_collective_is_named():
    made = train(Training(ranks=3, steps=10))
    tables = [one.table.copy() for one in made.ranks]
    tables[1] = tables[1][:15]
    for rank in (0, 2):
        tables[rank] = tables[rank][:16]
        tables[rank]["end"][15] = -1

    matched = match([with_table(one, table) for one, table in zip(made.ranks, tables, strict=True)])

    assert any(
        "1 collective that other ranks began was not begun by rank 1" in note
        for note in matched.notes
    )
    assert any("begun by ranks 0, 2, never ended" in note for note in matched.notes)
    assert (matched.start[-1] != MISSING).tolist() == [True, False, True]


def test_what_a_rank_that_still_trains_has_not_begun_or_ended_is_no_fault():
    tables = [one.table.copy() for one in train(Training(ranks=3, steps=10)).ranks]
    tables[0] = tables[0][:15]  # read first
    for rank in (1, 2):
        tables[rank] = tables[rank][:16]
        tables[rank]["end"][15] = -1
    made = [
        with_table(replace(one, live=True), table)
        for one, table in zip(train(Training(ranks=3, steps=10)).ranks, tables, strict=True)
    ]

    assert match(made).notes == []
    assert match([replace(made[0], live=False), *made[1:]]).notes == [
        "1 collective that other ranks began was not begun by rank 0, which had ended or been killed"
    ]


def test_what_ranks_that_stand_still_have_not_begun_or_ended_is_told_while_they_live():
    whole = train(Training(ranks=3, steps=10)).ranks
    tables = [one.table[: 15 if one.rank == 0 else 16].copy() for one in whole]
    for waiting in tables[1:]:
        waiting["end"][15] = -1
    first, *others = (
        with_table(replace(one, live=True, quiet=True), table)
        for one, table in zip(whole, tables, strict=True)
    )
    waits = "allreduce_ of group 0, begun by ranks 1, 2, has not ended so far"

    assert match([first, *others]).notes == [
        "1 collective that other ranks began was not begun by rank 0 so far",
        waits,
    ]
    assert match([replace(first, live=False), *others]).notes == [
        "1 collective that other ranks began was not begun by rank 0, which had ended or been "
        "killed",
        waits,
    ]
    assert match([replace(first, quiet=False), *others]).notes == []  # rank 0 may yet come


def test_a_rank_whose_records_begin_later_or_have_a_gap_was_not_killed():
    first, second = train(Training(ranks=2, steps=10)).ranks
    kept = np.delete(second.table, [0, 1, 2, 10])

    notes = match([first, with_table(second, kept)]).notes
    (note,) = match([first, replace(with_table(second, kept), traced=True)]).notes

    assert notes == [
        "3 collectives that other ranks began are missing on rank 1, whose records begin later",
        "1 collective that other ranks began is missing from the records of rank 1",
    ]
    assert note == "4 collectives that other ranks began are missing from the trace of rank 1"


def test_what_a_rank_forgot_of_a_long_run_is_not_taken_for_its_end():
    first, second = train(Training(ranks=2, steps=10)).ranks
    thinned = replace(with_table(first, first.table[:15]), stride=2)

    (note,) = match([thinned, second]).notes

    assert note.startswith("rank 0 kept 1 of 2 windows of 64 batches, others all:")


def test_a_rank_that_was_killed_in_a_long_run_is_named():
    first, second = (replace(one, stride=4) for one in train(Training(ranks=2, steps=10)).ranks)

    (note,) = match([first, with_table(second, second.table[:15])]).notes

    assert note.startswith("15 collectives that other ranks began were not begun by rank 1")


def test_a_folder_of_another_program_is_named_and_left_out():
    made, other = (
        train(Training(ranks=3, steps=10)),
        train(Training(ranks=3, steps=10, buckets=(2 * MB, 2 * MB))),
    )

    matched = match([*made.ranks[:2], other.ranks[2]])

    assert matched.ranks == [0, 1] and any(
        "rank 2 is left out of the comparison: " in note for note in matched.notes
    )
    assert not any("left no records" in note for note in matched.notes)


def test_a_folder_of_another_run_of_the_same_program_is_named_and_nothing_is_claimed():
    one, other = (
        train(Training(ranks=2, steps=60, jitter=15.0, seed=seed, measured=False))
        for seed in (1, 2)
    )
    mixed = [one.ranks[0], other.ranks[1]]

    alignment = align(mixed, match(mixed))

    assert alignment.bound == np.inf and any("different runs" in note for note in alignment.notes)


def test_two_folders_of_one_rank_are_refused():
    made = train(Training(ranks=2, steps=2))

    with pytest.raises(ValueError, match="rank 1 appears 2 times"):
        match([*made.ranks, made.ranks[1]])


def test_a_send_and_its_recv_are_one():
    ranks = messages([0, 50, 100], [20, 70, 120], [104, 154, 204], 84 * MB)

    matched = match(ranks)

    assert matched.notes == [] and matched.complete.tolist() == [True] * 3
    assert {matched.names[name] for name in matched.name} == {"send_recv"}
    assert matched.start[0].tolist() == [BOOT, BOOT + 20 * MS]


def test_sends_that_have_no_number_on_both_sides_are_not_matched():
    made = train(Training(ranks=2, steps=3))
    ranks = [replace(one, names=["send"]) for one in made.ranks]

    assert len(match(ranks).group) == 0


@pytest.mark.parametrize(
    ("group", "matched"),
    [
        (ProcessGroup("0", (0, 1), "gloo"), 0),
        (ProcessGroup("0 any>1", (), "gloo"), 0),
        (ProcessGroup("others", (), "gloo"), 2),
    ],
)
def test_where_a_rank_receives_from_anybody_no_message_is_matched_and_else_those_that_have_a_number(
    group, matched
):
    first, second = messages([0, 50], [20, 70], [104, 154], 84 * MB)
    table = np.concatenate([second.table, second.table[-1:]])
    table["group"][-1] = 1
    second = replace(with_table(second, table), groups=[*second.groups, group])

    assert len(match([first, second]).group) == matched


def test_a_run_that_ended_earlier_on_one_rank_still_matches():
    made = train(Training(ranks=2, steps=10, late=always(1, range(10), "wait", 5.0)))
    short = with_table(made.ranks[1], made.ranks[1].table[:12])

    matched = match([made.ranks[0], short])

    assert matched.complete.sum() == 12
    assert align([made.ranks[0], short], matched).bound < MS
