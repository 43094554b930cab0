"""Of every collective, when the first and the last rank began and ended: what one rank needs to know of all others.

Envelopes can be merged in any order and in any grouping, and give the same: minimum, maximum, count, and of equally late ranks the lowest.
"""

from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.comm.clocks import SLACK_NS, Alignment
from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.comm.match import MISSING, Matched, generations
from feedline.analysis.comm.operations import BETWEEN_TWO, TOGETHER, operation
from feedline.analysis.comm.partition import meet
from feedline.analysis.timeline import IntArray
from feedline.profiler.errors import RunDamaged

#: What a collective can be, by its number in an envelope.
KINDS = ("other", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", "broadcast", "scatter", "gather", "reduce")
MOST_ROWS = 8_000_000  # of a group: some 500 MB
EXTENT_DTYPE = np.dtype(
    [
        ("start_min", "<i8"),  # ns, rank 0's clock
        ("start_max", "<i8"),
        ("end_min", "<i8"),
        ("end_max", "<i8"),  # -1: one of the ranks cannot tell
        ("free", "<i8"),  # the last rank had begun and had a slot free
        ("nbytes", "<i8"),
        ("ranks", "<i4"),  # how many began it
        ("last", "<i4"),  # which began last
        ("kind", "u1"),  # index into KINDS
    ]
)
NEVER = np.iinfo(np.int64).max
_TOGETHER = [KINDS.index(name) for name in sorted(TOGETHER)]


@dataclass(frozen=True, order=True)
class Key:
    """A group; ``generation`` counts how often its numbers began anew before."""

    name: str
    ranks: tuple[int, ...]
    generation: int = 0


@dataclass
class Extents:
    """A group's collectives.

    Attributes:
        first: sequence number of the first row.
        rows: EXTENT_DTYPE, one row for each number from there on; ``ranks`` 0: nobody had this number.
    """

    first: int
    rows: np.ndarray

    def merge(self, other: "Extents") -> "Extents":
        """Both together."""
        first = min(self.first, other.first)
        length = max(self.first + len(self.rows), other.first + len(other.rows)) - first
        rows = empty(length) if (first, length) != (self.first, len(self.rows)) else self.rows.copy()
        if (first, length) != (self.first, len(self.rows)):
            rows[self.first - first :][: len(self.rows)] = self.rows
        mine, theirs = rows[other.first - first :][: len(other.rows)], other.rows
        later = (theirs["start_max"] > mine["start_max"]) | (theirs["start_max"] == mine["start_max"]) & (theirs["last"] < mine["last"])
        mine["last"][later] = theirs["last"][later]
        untold = (mine["ranks"] > 0) & (mine["end_max"] < 0) | (theirs["ranks"] > 0) & (theirs["end_max"] < 0)
        for name in ("start_min", "end_min"):
            np.minimum(mine[name], theirs[name], out=mine[name])
        for name in ("start_max", "end_max", "free", "nbytes", "kind"):
            np.maximum(mine[name], theirs[name], out=mine[name])
        mine["end_max"][untold] = -1
        mine["ranks"] += theirs["ranks"]
        return Extents(first, rows)


def empty(length: int) -> np.ndarray:
    """Rows that nobody had. Raises RunDamaged: more than fit into the memory of one process."""
    if length > MOST_ROWS:
        raise RunDamaged(f"the collectives of a group are numbered over a range of {length:,}, and at most {MOST_ROWS:,} are compared")
    rows = np.zeros(length, EXTENT_DTYPE)
    rows["start_min"] = rows["end_min"] = NEVER
    rows["start_max"] = rows["end_max"] = rows["free"] = -1
    rows["last"] = np.iinfo(np.int32).max
    return rows


NOTHING = Extents(0, empty(0))


@dataclass
class Envelope:
    """All groups' collectives."""

    groups: dict[Key, Extents] = field(default_factory=dict)

    @classmethod
    def of(cls, one: Collectives) -> "Envelope":
        """Of one rank alone. Sends and receives have numbers of their own on each rank, and are not in it."""
        found = cls()
        met = meet(alone(one), own_clock(one))
        for key, at in numbered(one).items():
            table = one.table[at]
            first = int(table["sequence"].min())
            rows = empty(int(table["sequence"].max()) - first + 1)
            row = table["sequence"] - first
            ends = met.end[at, 0]
            rows["start_min"][row] = rows["start_max"][row] = met.start[at, 0]
            rows["end_min"][row] = np.where(ends == MISSING, NEVER, ends)
            rows["end_max"][row] = np.where(ends == MISSING, -1, ends)
            rows["free"][row] = met.free[at]
            rows["nbytes"][row] = table["nbytes"]
            rows["kind"][row] = np.array([_kind(name) for name in one.names])[table["name"]]
            rows["ranks"][row], rows["last"][row] = 1, one.rank
            found.groups[key] = Extents(first, rows)
        return found

    def merge(self, other: "Envelope") -> "Envelope":
        """Both together; neither is changed."""
        both = {key: self.groups[key].merge(other.groups[key]) for key in self.groups.keys() & other.groups.keys()}
        return Envelope({**self.groups, **other.groups, **both})

    def contradicting(self, bound: float) -> float:
        """Share of the collectives that one rank ended before another had begun them, of those in which that cannot be.

        Args:
            bound: ns: how far two clocks can be apart.
        """
        early = total = 0
        for extents in self.groups.values():
            rows = extents.rows
            met = (rows["ranks"] > 1) & (rows["end_min"] < NEVER) & np.isin(rows["kind"], _TOGETHER)
            total += int(met.sum())
            early += int((rows["start_max"][met] - rows["end_min"][met] > bound + SLACK_NS).sum())
        return early / total if total else 0.0

    def rows_of(self, one: Collectives) -> np.ndarray:
        """The row of each of a rank's collectives: EXTENT_DTYPE [n]; its own times for sends and receives, and for what the rank began
        after the envelope was made."""
        found = empty(len(one.table))
        found["start_max"] = found["free"] = one.clock.to_reference(one.table["start"])
        found["last"] = one.rank
        for key, at in numbered(one).items():
            extents = self.groups.get(key, NOTHING)
            row = one.table["sequence"][at] - extents.first
            known = (row >= 0) & (row < len(extents.rows))
            found[at[known]] = extents.rows[row[known]]
        return found


def own_clock(one: Collectives) -> Alignment:
    """The clock that the rank measured; what is too far off is known by its bound."""
    return Alignment([one.clock], one.clock.bound, "measured", [])


def alone(one: Collectives) -> Matched:
    """A rank's own table as if it were matched: its rows in their order, one column. Sends and receives have no row."""
    count = len(one.table)
    what = [operation(name) for name in one.names] or [""]
    place = np.where(np.array([name in BETWEEN_TWO for name in what])[one.table["name"]], -1, np.arange(count))
    end = np.where(one.table["end"] < 0, MISSING, one.table["end"])
    return Matched(
        ranks=[one.rank],
        groups=one.groups,
        names=one.names,
        group=one.table["group"].astype(np.int64),
        name=one.table["name"].astype(np.int64),
        nbytes=one.table["nbytes"].astype(np.int64),
        member=np.ones((count, 1), bool),
        start=one.table["start"].astype(np.int64)[:, None],
        end=end.astype(np.int64)[:, None],
        rows=[place],
        whole=np.ones(count, bool),
        together=np.array([name in TOGETHER for name in what])[one.table["name"]],
    )


def numbered(one: Collectives) -> dict[Key, IntArray]:
    """Where in a rank's table the collectives of each group and generation are."""
    between_two = np.array([operation(name) in BETWEEN_TWO for name in one.names] or [False])
    found: dict[Key, IntArray] = {}
    for index, group in enumerate(one.groups):
        at = np.flatnonzero((one.table["group"] == index) & ~between_two[one.table["name"]])
        generation = generations(one.table["sequence"][at])
        for number in np.unique(generation).tolist():
            found[Key(group.name, group.ranks, number)] = at[generation == number]
    return found


def _kind(name: str) -> int:
    what = operation(name)
    return KINDS.index(what) if what in KINDS else 0
