"""The two passes over the ranks, one rank at a time: what the others need to know of it, then where its own time went."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.measure.pace import throughput_of
from feedline.analysis.measure.steps import partition as steps_of
from feedline.analysis.ranks.exchange import exchanges
from feedline.analysis.ranks.many.envelope import KINDS, Envelope
from feedline.analysis.ranks.many.sources import Source
from feedline.analysis.ranks.partition import PARTS, partition
from feedline.analysis.traces.collectives import UNKNOWN_HOST, Collectives
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Rank, name_ranks

WARM_UP = 2  # steps left out: DistributedDataParallel rebuilds its buckets, caches fill
Load = Callable[[Rank], Collectives | None]


@dataclass(frozen=True)
class RankScan:
    """What is known of a rank without the others.

    Attributes:
        stride: as of Collectives.
        until: ns, its own clock: where its last step ends.
        started_by: what all ranks have in common that one launcher started on one host; None: unknown.
        launch: the same for these ranks.
        exchanges: whether its steps exchange gradients with other ranks; None: unknown (comm/exchange.py).
        samples_per_s: as a report has it; None: samples were not seen.
        left_after: as of Collectives.
    """

    rank: int
    host: str
    state: str
    world_size: int
    steps: int
    stride: int
    until: int
    clock_bound_ns: float
    started_by: tuple[str, str] | None
    launch: str
    unseen: tuple[str, ...] = ()
    exchanges: bool | None = None
    samples_per_s: float | None = None
    left_after: int | None = None


@dataclass
class Survey:
    """The first pass, over one rank or several."""

    envelope: Envelope = field(default_factory=Envelope)
    seen: dict[int, RankScan] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)

    def merge(self, other: "Survey") -> "Survey":
        """Both together."""
        return Survey(self.envelope.merge(other.envelope), {**self.seen, **other.seen}, {**self.unread, **other.unread})


class Label(NamedTuple):
    """What collectives of one kind have in common."""

    name: str
    nbytes: int
    ranks: int  # of the group


class Moved(NamedTuple):
    """Collectives of one kind that all ranks of their group began, and whose end this rank saw."""

    times: int
    ns: int  # in which their bytes moved


@dataclass(frozen=True)
class Spent:
    """The second pass.

    Attributes:
        steps: how many count.
        step_ns: their sum.
        parts_ns: PARTS -> sum over these steps.
        blamed_ns: rank -> waiting for it.
        moved: what its collectives took.
    """

    rank: int
    steps: int
    step_ns: int
    parts_ns: dict[str, int]
    blamed_ns: dict[int, int]
    moved: dict[Label, Moved] = field(default_factory=dict)


def survey(chunk: Sequence[Source], load: Load) -> Survey:
    """Read ranks one after the other; one that cannot be read is name_ranks."""
    return reduce(Survey.merge, (_survey(source, load) for source in chunk), Survey())


def _survey(source: Source, load: Load) -> Survey:
    try:
        with source.opened() as rank:
            one = load(rank)
            if one is None:
                return Survey(unread={source.rank: "it made no step and called no collective"})
            return Survey(Envelope.of(one), {source.rank: _seen(rank, one)})
    except (FeedlineError, OSError) as error:
        return Survey(unread={source.rank: str(error)})


def _seen(rank: Rank, one: Collectives) -> RankScan:
    place = rank.manifest.place
    node = place.get("group_rank")
    apart = place.get("launcher") == "env" or (node is None and one.host == UNKNOWN_HOST)  # typed one by one, or of unknown hosts
    return RankScan(
        rank=one.rank,
        host=one.host,
        state=rank.manifest.state,
        world_size=int(str(place.get("world_size", 1))),
        steps=len(one.steps),
        stride=one.stride,
        until=int(one.steps[-1, 1]) if len(one.steps) else 0,
        clock_bound_ns=one.clock.bound,
        started_by=None if apart else (one.host, str(node)),
        launch=rank.manifest.launch,
        unseen=tuple(one.unseen),
        exchanges=exchanges(one, rank.manifest),
        left_after=one.left_after,
        samples_per_s=throughput_of(rank.main, steps_of(rank.main)).samples_per_s,
    )


def _warm_up(one: Collectives) -> int:
    """Index of the first step that counts."""
    return min(WARM_UP, max(0, len(one.steps) - 1))


def foreign(seen: Mapping[int, RankScan]) -> dict[int, str]:
    """Ranks of another launch than most that the same launcher must have started, and what to say of them; of two launches with as many
    ranks, that of the lowest counts."""
    launches: dict[tuple[str, str], dict[str, list[int]]] = {}
    for rank, one in sorted(seen.items()):
        if one.started_by is not None:
            launches.setdefault(one.started_by, {}).setdefault(one.launch, []).append(rank)
    found: dict[int, str] = {}
    for by_launch in launches.values():
        most = max(by_launch.values(), key=len)
        for ranks in by_launch.values():
            if ranks is not most:
                found |= dict.fromkeys(ranks, f"its folder belongs to a different launch than {name_ranks(most)} on the same host")
    return found


def spend(chunk: Sequence[Source], everybody: Survey, load: Load, bound: float) -> list[Spent]:
    """Split the steps that the first pass has seen, one rank after the other: a live run has made more since.

    Args:
        bound: ns: shorter waiting counts as transfer.
    """
    found = []
    for source in chunk:
        with source.opened() as rank:
            one = load(rank)
            if one is not None:
                steps = one.steps[one.steps[:, 1] <= everybody.seen[source.rank].until]
                found.append(_spend(replace(one, steps=steps), everybody.envelope, bound))
    return found


def _spend(one: Collectives, envelope: Envelope, bound: float) -> Spent:
    others = envelope.arrivals(one, bound)
    made = partition(one, others)
    first = _warm_up(one)
    blamed = made.blamed[first:].sum(0).tolist()
    return Spent(
        one.rank,
        len(one.steps) - first,
        int(one.walls[first:].sum()),
        {name: int(made.parts[name][first:].sum()) for name in PARTS},
        {rank: spent for rank, spent in zip(others.ranks, blamed, strict=False) if spent},  # no other rank: one column of nothing
        _moved(one, envelope, made.moving) if isfinite(bound) else {},
    )


def _moved(one: Collectives, envelope: Envelope, moving: npt.NDArray[np.float64]) -> dict[Label, Moved]:
    """What the complete collectives took on this rank.

    Args:
        moving: of its partition: float64 [n], ns.
    """
    rows = envelope.rows_of(one)
    sizes = np.array([len(group.ranks) for group in one.groups] or [0])[one.table["group"]]
    known = (rows["ranks"] == sizes) & (moving > 0)
    found: dict[Label, Moved] = {}
    for kind, nbytes, ranks in set(zip(rows["kind"][known].tolist(), rows["nbytes"][known].tolist(), sizes[known].tolist(), strict=True)):
        these = known & (rows["kind"] == kind) & (rows["nbytes"] == nbytes) & (sizes == ranks)
        found[Label(KINDS[kind], nbytes, ranks)] = Moved(int(these.sum()), int(moving[these].sum()))
    return found
