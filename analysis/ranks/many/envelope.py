"""Of every collective, when the first and the last rank began and ended.

It is what one rank needs to know of all others. Envelopes can be merged in any order and in any
grouping, and give the same: minimum, maximum, count, and of equally late ranks the lowest.
"""

from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.ranks.aligned_clocks import (
    STAMP_SLACK_NS,
    RankArrivals,
    arrivals_of_differences,
    incomparable_arrivals,
    slot_free_since,
    waited_for,
)
from feedline.analysis.ranks.match import MISSING, generations
from feedline.analysis.traces.collectives import BETWEEN_TWO, TOGETHER, Collectives, operation
from feedline.profiler.errors import RunDamaged

#: What a collective can be, by its number in an envelope.
OPERATION_KINDS = (
    "other",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "barrier",
    "broadcast",
    "scatter",
    "gather",
    "reduce",
)
_MAX_GROUP_ROWS = 8_000_000  # of a group: some 500 MB
_EXTENT_DTYPE = np.dtype(
    [
        ("start_min", "<i8"),  # ns, rank 0's clock
        ("start_max", "<i8"),
        ("end_min", "<i8"),
        ("end_max", "<i8"),  # -1: one of the ranks cannot tell
        ("free", "<i8"),  # the last rank had begun and had a slot free
        ("nbytes", "<i8"),
        (
            "root",
            "<i8",
        ),  # the first rank of the group began: where only some wait, as a rule for this one; -1: it is not there
        ("ranks", "<i4"),  # how many began it
        ("last", "<i4"),  # which began last
        ("kind", "u1"),  # index into OPERATION_KINDS
    ]
)
_NEVER = np.iinfo(np.int64).max
_TOGETHER = [OPERATION_KINDS.index(name) for name in sorted(TOGETHER)]


@dataclass(frozen=True, order=True)
class _Key:
    """A group; ``generation`` counts how often its numbers started again before."""

    name: str
    ranks: tuple[int, ...]
    generation: int = 0


@dataclass
class _Extents:
    """A group's collectives.

    Attributes:
        first: sequence number of the first row.
        rows: _EXTENT_DTYPE, one row for each number from there on; ``ranks`` 0: no rank had this
            number.
    """

    first: int
    rows: np.ndarray

    def merge(self, other: "_Extents") -> "_Extents":
        """Return both together."""
        first = min(self.first, other.first)
        length = max(self.first + len(self.rows), other.first + len(other.rows)) - first
        rows = (
            _empty(length) if (first, length) != (self.first, len(self.rows)) else self.rows.copy()
        )
        if (first, length) != (self.first, len(self.rows)):
            rows[self.first - first :][: len(self.rows)] = self.rows
        mine, theirs = rows[other.first - first :][: len(other.rows)], other.rows
        later = (theirs["start_max"] > mine["start_max"]) | (
            theirs["start_max"] == mine["start_max"]
        ) & (theirs["last"] < mine["last"])
        mine["last"][later] = theirs["last"][later]
        untold = (mine["ranks"] > 0) & (mine["end_max"] < 0) | (theirs["ranks"] > 0) & (
            theirs["end_max"] < 0
        )
        for name in ("start_min", "end_min"):
            np.minimum(mine[name], theirs[name], out=mine[name])
        for name in ("start_max", "end_max", "free", "nbytes", "root", "kind"):
            np.maximum(mine[name], theirs[name], out=mine[name])
        mine["end_max"][untold] = -1
        mine["ranks"] += theirs["ranks"]
        return _Extents(first, rows)


def _empty(length: int) -> np.ndarray:
    """Return rows of no rank.

    Raises:
        RunDamaged: more than fit into the memory of one process.
    """
    if length > _MAX_GROUP_ROWS:
        raise RunDamaged(
            f"the collectives of a group are numbered over a range of {length:,}; at most "
            f"{_MAX_GROUP_ROWS:,} can be compared"
        )
    rows = np.zeros(length, _EXTENT_DTYPE)
    rows["start_min"] = rows["end_min"] = _NEVER
    rows["start_max"] = rows["end_max"] = rows["free"] = rows["root"] = -1
    rows["last"] = np.iinfo(np.int32).max
    return rows


_NO_EXTENTS = _Extents(0, _empty(0))


@dataclass
class Envelope:
    """All groups' collectives."""

    groups: dict[_Key, _Extents] = field(default_factory=dict)

    @classmethod
    def of(cls, collectives: Collectives) -> "Envelope":
        """Make the envelope of one rank.

        Sends and receives have numbers of their own on each rank, and are not in it.
        """
        envelope = cls()
        start, end = _on_reference(collectives)
        for key, at in _numbered(collectives).items():
            table = collectives.table[at]
            first = int(table["sequence"].min())
            rows = _empty(int(table["sequence"].max()) - first + 1)
            row = table["sequence"] - first
            rows["start_min"][row] = rows["start_max"][row] = start[at]
            rows["end_min"][row] = np.where(end[at] == MISSING, _NEVER, end[at])
            rows["end_max"][row] = np.where(end[at] == MISSING, -1, end[at])
            rows["free"][row] = np.maximum(
                start[at], slot_free_since(end[at], collectives.groups[table["group"][0]].backend)
            )
            rows["root"][row] = start[at] if key.ranks[:1] == (collectives.rank,) else -1
            rows["nbytes"][row] = table["nbytes"]
            rows["kind"][row] = np.array([_kind(name) for name in collectives.names])[table["name"]]
            rows["ranks"][row], rows["last"][row] = 1, collectives.rank
            envelope.groups[key] = _Extents(first, rows)
        return envelope

    def merge(self, other: "Envelope") -> "Envelope":
        """Return both together; neither is changed."""
        both = {
            key: self.groups[key].merge(other.groups[key])
            for key in self.groups.keys() & other.groups.keys()
        }
        return Envelope({**self.groups, **other.groups, **both})

    def contradicting(self, bound: float) -> float:
        """Return the share of collectives that one rank ended before another had begun them.

        Of those in which that cannot be.

        Args:
            bound: ns: how far two clocks can be apart.
        """
        early = total = 0
        for extents in self.groups.values():
            rows = extents.rows
            met = (
                (rows["ranks"] > 1) & (rows["end_min"] < _NEVER) & np.isin(rows["kind"], _TOGETHER)
            )
            total += int(met.sum())
            early += int(
                (rows["start_max"][met] - rows["end_min"][met] > bound + STAMP_SLACK_NS).sum()
            )
        return early / total if total else 0.0

    def rows_of(self, collectives: Collectives) -> np.ndarray:
        """Return the row of each of a rank's collectives: _EXTENT_DTYPE [n].

        It holds the rank's own times for sends and receives, and for what it began after the
        envelope was made.
        """
        extents_of_rank = _empty(len(collectives.table))
        extents_of_rank["start_max"] = extents_of_rank["free"] = collectives.clock.to_reference(
            collectives.table["start"]
        )
        extents_of_rank["last"] = collectives.rank
        for key, at in _numbered(collectives).items():
            extents = self.groups.get(key, _NO_EXTENTS)
            row = collectives.table["sequence"][at] - extents.first
            known = (row >= 0) & (row < len(extents.rows))
            extents_of_rank[at[known]] = extents.rows[row[known]]
        return extents_of_rank

    def arrivals(self, collectives: Collectives, bound: float) -> RankArrivals:
        """Return when the others came to a rank's collectives.

        Where only some ranks wait for each other, waiting for the first rank of the group and for
        the last of all is known; for any other rank it counts as transfer.

        Args:
            collectives: the rank's collectives.
            bound: ns: shorter waiting counts as transfer; inf: all of it does.
        """
        if not np.isfinite(bound):
            return incomparable_arrivals(collectives, [collectives.rank])
        there = _among_all(collectives)
        rows = self.rows_of(collectives)[there]
        start, end = (times[there] for times in _on_reference(collectives))
        roots = np.array([min(group.ranks, default=-1) for group in collectives.groups], np.int64)[
            collectives.table["group"][there]
        ]
        last, whom = rows["start_max"].astype(np.int64), rows["last"].astype(np.int64)
        one_way = np.flatnonzero(~np.isin(rows["kind"], _TOGETHER))
        begins = np.stack([start, rows["root"], last], 1)
        ranks = np.stack([np.full(len(rows), collectives.rank), roots, whom], 1)
        last[one_way], column = waited_for(begins[one_way], 0, end[one_way])
        whom[one_way] = ranks[one_way, column]
        known, late = np.unique(whom, return_inverse=True)
        met = bool((rows["ranks"] > 1).any())
        return arrivals_of_differences(
            collectives,
            there,
            last - start,
            rows["free"] - rows["start_max"],
            late,
            known.tolist(),
            bound,
            met,
        )


def _on_reference(collectives: Collectives) -> tuple[IntArray, IntArray]:
    """Return when each of a rank's collectives began and ended, by the clock that it measured.

    int64 [n] each, ns; MISSING: no end was seen.
    """
    begin, done = collectives.table["start"], collectives.table["end"]
    return collectives.clock.to_reference(begin), np.where(
        done < 0, MISSING, collectives.clock.to_reference(done)
    )


def _among_all(collectives: Collectives) -> BoolArray:
    """Mark the entries of a rank's table that are collectives, bool [n].

    Others are messages between two ranks.
    """
    return ~np.array([operation(name) in BETWEEN_TWO for name in collectives.names] or [False])[
        collectives.table["name"]
    ]


def _numbered(collectives: Collectives) -> dict[_Key, IntArray]:
    """Return where in a rank's table the collectives of each group and generation are."""
    collective = _among_all(collectives)
    rows_by_key: dict[_Key, IntArray] = {}
    for index, group in enumerate(collectives.groups):
        at = np.flatnonzero((collectives.table["group"] == index) & collective)
        generation = generations(collectives.table["sequence"][at])
        for number in np.unique(generation).tolist():
            rows_by_key[_Key(group.name, group.ranks, number)] = at[generation == number]
    return rows_by_key


def _kind(name: str) -> int:
    what = operation(name)
    return OPERATION_KINDS.index(what) if what in OPERATION_KINDS else 0
