"""Which collective of one rank is which of another: by group and number within it, never by time.

A send and its recv are one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.text.formatting import counted
from feedline.analysis.traces.collectives import (
    BETWEEN_TWO,
    MESSAGE,
    TOGETHER,
    Collectives,
    ProcessGroup,
    operation,
)
from feedline.profiler.message import name_ranks

MISSING = np.iinfo(np.int64).min

#: A rank of which more than this share of the collectives is something else than on most ranks
#: belongs to another run. Single ones differ in honest programs: a rank that logs more, an
#: all_to_all of uneven shards.
_FOREIGN_SHARE = 0.05

#: Their messages are equally long on all ranks.
_EQUAL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast"})


@dataclass(frozen=True)
class CollectiveTable:
    """The collectives of all ranks, one row each.

    Attributes:
        ranks: rank of each column, ascending.
        groups, names: what ``group`` and ``name`` are indices into.
        group, name: int64 [m].
        nbytes: int64 [m].
        member: bool [m, ranks]: the rank belongs to the group.
        start, end: int64 [m, ranks], ns, each column in its rank's own time; MISSING: not there, or
            unknown.
        rows: for each column, int64 [k]: the row of each entry in that rank's table, -1 where it
            cannot be matched.
        complete: bool [m]: every rank of the group is there.
        together: bool [m]: no rank ends before all have begun.
        notes: ranks that are missing, killed or foreign, in words.
        foreign: rank of another run, which has no column -> why it is left out, in words.
    """

    ranks: list[int]
    groups: list[ProcessGroup]
    names: list[str]
    group: IntArray
    name: IntArray
    nbytes: IntArray
    member: BoolArray
    start: IntArray
    end: IntArray
    rows: list[IntArray]
    complete: BoolArray
    together: BoolArray
    notes: list[str] = field(default_factory=list)
    foreign: dict[int, str] = field(default_factory=dict)


def match(ranks: Sequence[Collectives]) -> CollectiveTable:
    """Join the tables of all ranks. Ranks of another run are left out, and named.

    Raises:
        ValueError: two of them are the same rank.
    """
    counts = Counter(rank.rank for rank in ranks)
    if double := [rank for rank, times in counts.items() if times > 1]:
        raise ValueError(
            f"rank {double[0]} appears {counts[double[0]]} times: folders of different runs are "
            f"mixed"
        )
    ordered = sorted(ranks, key=lambda item: item.rank)
    joined = _join(ordered)
    foreign = _foreign(joined, ordered)
    if foreign:
        joined = _join([rank for rank in ordered if rank.rank not in foreign])
    notes = [*foreign.values(), *_absent(joined, set(counts)), *_unended(joined, ordered)]
    return CollectiveTable(**{**vars(joined), "notes": notes, "foreign": foreign})


def _join(ranks: Sequence[Collectives]) -> CollectiveTable:
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    names: dict[str, int] = {}
    keys, tables = [], []
    messages = [_messages(rank) for rank in ranks]
    anybody = any(
        _from_anybody(rank, message & ~numbered)
        for rank, (message, numbered) in zip(ranks, messages, strict=True)
    )
    for rank, (message, numbered) in zip(ranks, messages, strict=True):
        numbers = np.array(
            [groups.setdefault((group.name, group.ranks), len(groups)) for group in rank.groups]
            or [0]
        )
        meanings = np.array([names.setdefault(name, len(names)) for name in rank.names] or [0])
        table = rank.table
        group = numbers[table["group"]] if len(table) else np.zeros(0, np.int64)
        key = np.stack(
            [
                group,
                _generation(2 * group + message, table["sequence"]),
                table["sequence"].astype(np.int64),
            ],
            1,
        )
        key[message & (anybody | ~numbered)] = -1
        keys.append(key)
        meaning = meanings[table["name"]] if len(table) else group
        meaning[message & numbered] = names.setdefault(MESSAGE, len(names))
        tables.append((meaning, table))
    every = np.concatenate(keys) if keys else np.zeros((0, 3), np.int64)
    distinct, inverse = np.unique(every, axis=0, return_inverse=True)
    first = 1 if len(distinct) and distinct[0, 0] < 0 else 0
    rows = (
        [
            part.astype(np.int64) - first
            for part in np.split(inverse.ravel(), np.cumsum([len(key) for key in keys])[:-1])
        ]
        if keys
        else []
    )
    return _filled(ranks, list(groups), list(names), distinct[first:], rows, tables)


def _from_anybody(collectives: Collectives, unnumbered: BoolArray) -> bool:
    """Tell whether a rank received from any source: which message of a sender that took is unknown.

    Args:
        collectives: the rank's collectives.
        unnumbered: bool [n]: messages whose group does not number them on both sides. Those beyond
            the names that a rank keeps (profiler/taps/collectives/groups.py, _OTHER_GROUPS) have none of
            another group's numbers.
    """
    return any(
        collectives.groups[group].name != "others"
        for group in np.unique(collectives.table["group"][unnumbered]).tolist()
    )


def _messages(collectives: Collectives) -> tuple[BoolArray, BoolArray]:
    """Tell which entries of a table are sends and receives.

    The second value tells which are of a group that numbers them on both sides.
    """
    message = np.array([operation(name) in BETWEEN_TWO for name in collectives.names] or [False])[
        collectives.table["name"]
    ]
    numbered = np.array([group.between_two for group in collectives.groups] or [False])[
        collectives.table["group"]
    ]
    return message, numbered


def _filled(
    ranks: Sequence[Collectives],
    groups: list[tuple[str, tuple[int, ...]]],
    names: list[str],
    distinct: IntArray,
    rows: list[IntArray],
    tables: list[tuple[IntArray, npt.NDArray[np.void]]],
) -> CollectiveTable:
    shape = (len(distinct), len(ranks))
    start, end = np.full(shape, MISSING), np.full(shape, MISSING)
    name, nbytes = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    # the lowest rank has the last word
    for column, (row, (meaning, table)) in reversed(
        list(enumerate(zip(rows, tables, strict=True)))
    ):
        there = row >= 0
        at = row[there]
        start[at, column] = table["start"][there]
        end[at, column] = np.where(table["end"][there] < 0, MISSING, table["end"][there])
        name[at], nbytes[at] = meaning[there], table["nbytes"][there]
    present = [rank.rank for rank in ranks]
    backends = {(group.name, group.ranks): group.backend for rank in ranks for group in rank.groups}
    belongs = np.array([[rank in of for rank in present] for _, of in groups], bool).reshape(
        len(groups), len(present)
    )
    sizes = np.array([len(of) for _, of in groups], np.int64)
    group = distinct[:, 0].astype(np.int64)
    seen = (start != MISSING).sum(1)
    return CollectiveTable(
        present,
        [ProcessGroup(label, of, backends[label, of]) for label, of in groups],
        names,
        group,
        name,
        nbytes,
        belongs[group] if len(group) else np.zeros(shape, bool),
        start,
        end,
        rows,
        seen == sizes[group] if len(group) else np.zeros(0, bool),
        np.array([operation(called) in TOGETHER for called in names] or [False], bool)[name],
    )


def generations(numbers: IntArray) -> IntArray:
    """Count how often a group's numbers have started again.

    They do when a group is destroyed and made again under the same name.

    Args:
        numbers: int64 [n], of one group, in order of start.

    Returns:
        int64 [n], from 0.
    """
    order = np.argsort(numbers, kind="stable")
    again = np.flatnonzero(np.diff(numbers[order]) == 0)
    before = np.full(len(numbers), -1)  # where each number was last
    before[order[again + 1]] = order[again]
    latest = np.maximum.accumulate(before)
    begins = [0]
    while (begin := int(np.searchsorted(latest, begins[-1]))) < len(numbers):
        begins.append(begin)
    return np.searchsorted(begins, np.arange(len(numbers)), "right") - 1


def _generation(group: IntArray, sequence: npt.NDArray[np.int64]) -> IntArray:
    numbers = np.zeros(len(group), np.int64)
    for value in np.unique(group).tolist():
        at = np.flatnonzero(group == value)
        numbers[at] = generations(sequence[at])
    return numbers


def _foreign(joined: CollectiveTable, ranks: Sequence[Collectives]) -> dict[int, str]:
    """Return ranks whose collectives are not those of the others under the same numbers."""
    index = {name: number for number, name in enumerate(joined.names)}
    shape = joined.start.shape
    signature = np.full(shape, -1)
    for column, rank in enumerate(ranks):
        row = joined.rows[column]
        meaning = np.array([index[name] for name in rank.names] or [0])
        equal = np.array([operation(name) in _EQUAL for name in rank.names] or [False])
        there = (row >= 0) & ~_messages(rank)[0]
        table = rank.table[there]
        signature[row[there], column] = (
            meaning[table["name"]] * (1 << 48) + table["nbytes"] * equal[table["name"]]
            if len(table)
            else 0
        )
    shared = (signature >= 0).sum(1) >= 2
    if not shared.any():
        return {}
    usual = _most_common(signature[shared])
    odd = (signature[shared] >= 0) & (signature[shared] != usual[:, None])
    complaints = {}
    for column, rank in enumerate(ranks):
        shared_by = int((signature[shared][:, column] >= 0).sum())
        differ = int(odd[:, column].sum())
        if shared_by and differ > _FOREIGN_SHARE * shared_by:
            complaints[rank.rank] = (
                f"rank {rank.rank} is left out of the comparison: {differ} of its {shared_by} "
                f"collectives differ from those of most ranks, "
                "so it belongs to another run or program"
            )
    return complaints if len(complaints) < len(ranks) else {}


def _most_common(signature: IntArray) -> IntArray:
    """Return the value of each row that most ranks have; of two ranks, the first one's."""
    best, most = np.full(len(signature), -1), np.zeros(len(signature), np.int64)
    # among sixteen ranks is one of the majority, or there is none
    for column in range(min(signature.shape[1], 16)):
        value = signature[:, column]
        times = np.where(value >= 0, (signature == value[:, None]).sum(1), 0)
        best, most = np.where(times > most, value, best), np.maximum(times, most)
    return best


def _absent(joined: CollectiveTable, given: set[int]) -> list[str]:
    expected = {rank for group in joined.groups for rank in group.ranks}
    absent = sorted(expected - given)
    if not absent:
        return []
    who = (
        f"rank {absent[0]}"
        if len(absent) == 1
        else f"ranks {', '.join(map(str, absent[:8]))}{', ...' if len(absent) > 8 else ''}"
    )
    return [
        f"{who} left no records: waiting for {'it' if len(absent) == 1 else 'them'} counts as "
        f"transfer"
    ]


def _unended(joined: CollectiveTable, ranks: Sequence[Collectives]) -> list[str]:
    """Return the ranks that left the others, or were killed, during a collective.

    Others began a later one, or no rank recorded its end.
    """
    notes = []
    by_rank = {rank.rank: rank for rank in ranks}
    stride = np.array([by_rank[rank].stride for rank in joined.ranks])
    for column, rank in enumerate(joined.ranks):
        own = joined.start[:, column] != MISSING
        # that forgot no less: what they kept, this rank kept too
        others = (joined.start[:, stride >= stride[column]] != MISSING).any(1)
        missed = joined.member[:, column] & others & ~own
        if missed.any() and own.any():
            notes += _missed(joined, column, missed, by_rank)
        if stride[column] > stride.min():
            notes.append(
                f"rank {rank} kept 1 of {stride[column]} windows of 64 batches, others "
                f"{describe_kept(int(stride.min()))}: in windows that "
                "this rank did not keep, waiting for it counts as transfer"
            )
    # of some, no rank can ever tell the end
    ends = np.bincount(joined.name, (joined.end != MISSING).any(1), len(joined.names))
    begun_by = joined.start != MISSING
    # a rank that still trains may just be in it, or on its way to it
    in_flight = joined.member[:, [by_rank[rank].moves for rank in joined.ranks]].any(1)
    hanging = (
        begun_by.any(1) & (joined.end == MISSING).all(1) & (ends[joined.name] > 0) & ~in_flight
    )
    last = {int(joined.group[row]): row for row in np.flatnonzero(hanging)}
    for group, row in sorted(last.items()):
        if (joined.group[row + 1 :] == group).any():
            continue
        begun = [
            rank for column, rank in enumerate(joined.ranks) if joined.start[row, column] != MISSING
        ]
        name = joined.names[int(joined.name[row])]
        how = "has not ended so far" if any(by_rank[rank].live for rank in begun) else "never ended"
        notes.append(f"{name} of group {joined.groups[group].name}, begun by "
                     f"rank{'s' * (len(begun) > 1)} "
                     f"{', '.join(map(str, begun[:8]))}, {how}")  # fmt: skip
    return notes


def _missed(
    joined: CollectiveTable, column: int, missed: BoolArray, by_rank: Mapping[int, Collectives]
) -> list[str]:
    """Say how many collectives of its groups a rank did not begin, and why.

    Args:
        joined: the collectives of all ranks.
        column: of the rank, which began some.
        missed: bool [m]: those that others began and it did not.
        by_rank: rank -> its collectives.
    """
    rank = by_rank[joined.ranks[column]]
    if rank.traced:
        return _listed(missed, f"{{}} missing from the trace of rank {rank.rank}")
    before, after = _around(joined, column)
    left = _left(joined, column, after, by_rank)
    # the ranks of a live run are read one after the other: the first have begun fewer
    unbegun = np.zeros_like(missed) if rank.moves else missed & after
    why = " so far" if rank.live else ", which had ended or been killed"
    return [
        *([left] if left else _listed(
            unbegun, f"{{}} not begun by rank {rank.rank}{why}", "was", "were",
        )),
        *_listed(missed & before, f"{{}} missing on rank {rank.rank}, whose records begin later"),
        *_listed(missed & ~before & ~after, f"{{}} missing from the records of rank {rank.rank}"),
    ]  # fmt: skip


def _listed(missed: BoolArray, what: str, one: str = "is", several: str = "are") -> list[str]:
    """Say what is the case of these collectives; nothing if there are none."""
    count = int(missed.sum())
    verb = one if count == 1 else several
    return [f"{counted(count, 'collective')} that other ranks began {what.format(verb)}"] * (
        count > 0
    )


def _around(joined: CollectiveTable, column: int) -> tuple[BoolArray, BoolArray]:
    """Tell which rows come before a rank's first one of their group, and which after its last."""
    row, own = np.arange(len(joined.group)), joined.start[:, column] != MISSING
    first, last = np.full((2, len(joined.groups)), -1)
    last[joined.group[own]] = row[own]
    first[joined.group[own][::-1]] = row[own][::-1]
    known = last[joined.group] >= 0
    return row < first[joined.group], known & (row > last[joined.group])


def _left(
    joined: CollectiveTable, column: int, after: BoolArray, by_rank: Mapping[int, Collectives]
) -> str:
    """Say that a rank had come to the end of its data, and which others wait for it.

    It says in which collective. Empty: it had not.

    Args:
        joined: the collectives of all ranks.
        column: of the rank.
        after: bool [m]: those that come after its last one of their group.
        by_rank: rank -> its collectives.
    """
    rank = by_rank[joined.ranks[column]]
    there = joined.start != MISSING
    missed = joined.member[:, column] & there.any(1) & after
    if rank.left_after is None or not missed.any():
        return ""
    row = int(np.argmax(missed))
    waiting = [joined.ranks[other] for other in np.flatnonzero(there[row]).tolist()]
    first = by_rank[waiting[0]]
    number = int(first.table["sequence"][joined.rows[joined.ranks.index(waiting[0])] == row][0])
    return (
        f"rank {rank.rank} left its loop after {counted(rank.left_after, 'batch', 'batches')} of "
        f"its last epoch; {name_ranks(waiting)} "
        f"wait{'s' * (len(waiting) == 1)} for it in "
        f"{operation(joined.names[int(joined.name[row])])} {number}"
    )


def describe_kept(stride: int) -> str:
    """Say how many of its windows a rank kept."""
    return "all" if stride == 1 else f"1 of {stride}"
