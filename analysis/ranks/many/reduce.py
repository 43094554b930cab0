"""All ranks of a launch in two passes: what each costs the others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from feedline.analysis.ranks.aligned_clocks import OUTLIERS
from feedline.analysis.ranks.bandwidth import bandwidth_of
from feedline.analysis.ranks.many.envelope import OPERATION_KINDS, Envelope
from feedline.analysis.ranks.many.passes import (
    CollectiveLabel,
    Load,
    RankSource,
    Spent,
    Survey,
    find_sources,
    foreign_ranks,
    split_steps,
    survey_ranks,
)
from feedline.analysis.ranks.many.rank_pool import RankPool, Tell, chunked, each, silent
from feedline.analysis.ranks.match import describe_kept
from feedline.analysis.text.formatting import counted, share
from feedline.analysis.traces.collectives import Collectives
from feedline.profiler import masks
from feedline.profiler.errors import RunDamaged
from feedline.profiler.message import name_ranks
from feedline.profiler.store.run_folder import Rank

_MANY_SCHEMA = 1
_MOST_KINDS = 12  # rows of the table of collectives
#: Ranks per task: with more, progress shows later; with fewer, the envelope is sent more often.
_CHUNK = 8


@dataclass(frozen=True)
class RankCost:
    """The mean step of one rank, s. The six parts sum to ``step_s``.

    Attributes:
        counted_steps: Those that the means are of: all but the first ones.
        caused_s: what all other ranks together waited for this one, per step.
    """

    rank: int
    host: str
    steps: int
    counted_steps: int
    step_s: float
    compute_s: float
    hidden_transfer_s: float
    exposed_transfer_s: float
    hidden_wait_s: float
    exposed_wait_s: float
    queue_s: float
    caused_s: float


@dataclass(frozen=True)
class _KindCost:
    """Collectives of one operation, size of message and group size.

    Attributes:
        busbw_gbps: of the complete ones, as in a report (ranks/bandwidth.py). None: none is
            complete, or waiting cannot be separated from transfer.
    """

    name: str
    nbytes: int
    ranks: int
    count: int
    busbw_gbps: float | None


@dataclass(frozen=True)
class Many:
    """All ranks.

    Attributes:
        clock_bound_s: shorter waiting counts as transfer; None: all of it does, as the ranks'
            clocks were not compared or are wrong.
        incomplete: collectives that not all ranks of their group began.
        samples_per_s: of all ranks together; None: not measured on each.
        together: whether any rank exchanges gradients with others; None: unknown.
    """

    ranks: list[RankCost]
    world_size: int
    clock_bound_s: float | None
    kinds: list[_KindCost]
    collectives: int
    incomplete: int
    notes: list[str]
    samples_per_s: float | None = None
    together: bool | None = None
    schema_version: int = _MANY_SCHEMA

    @property
    def late(self) -> list[RankCost]:
        """The ranks that others waited for, the worst first."""
        return sorted(
            (rank for rank in self.ranks if rank.caused_s > 0),
            key=lambda item: (-item.caused_s, item.rank),
        )


def _put_together(
    everybody: Survey, spent: Sequence[Spent], notes: Sequence[str], bound: float
) -> Many:
    """Add up what ranks spent.

    From sums in whole nanoseconds, so that the order in which ranks came does not change a digit.
    """
    caused: dict[int, int] = {}
    for cost in spent:
        for rank, waited in cost.blamed_ns.items():
            caused[rank] = caused.get(rank, 0) + waited
    ranks = [_cost(everybody, cost, caused.get(cost.rank, 0)) for cost in spent]
    kinds, incomplete, count = _kinds(everybody.envelope, spent)
    size = max([seen.world_size for seen in everybody.seen.values()], default=0)
    all_notes = [*notes, *_said(everybody, size)]
    rates = [seen.samples_per_s for seen in everybody.seen.values()]
    return Many(
        ranks,
        size,
        bound / 1e9 if np.isfinite(bound) else None,
        kinds,
        count,
        incomplete,
        all_notes,
        sum(rate for rate in rates if rate is not None) if rates and None not in rates else None,
        _together([seen.exchanges for seen in everybody.seen.values()]),
    )


def _together(exchanges: Sequence[bool | None]) -> bool | None:
    """Tell whether any rank exchanges gradients; None: unknown."""
    return True if True in exchanges else None if None in exchanges else False


def _cost(everybody: Survey, spent: Spent, caused_ns: int) -> RankCost:
    seen = everybody.seen[spent.rank]
    divisor = max(1, spent.steps) * 1e9
    parts = {f"{name}_s": value / divisor for name, value in spent.parts_ns.items()}
    return RankCost(
        rank=spent.rank,
        host=seen.host,
        steps=seen.steps,
        counted_steps=spent.steps,
        step_s=spent.step_ns / divisor,
        caused_s=caused_ns / divisor,
        **parts,
    )


def _said(everybody: Survey, size: int) -> Iterable[str]:
    """Say which ranks are missing, unreadable, shorter than the others, cut, or of another launch."""
    seen = everybody.seen
    missing = sorted(set(range(size)) - set(seen) - set(everybody.unread))
    if missing:
        yield (
            f"{name_ranks(missing)} of {size} left no folder: waiting for "
            f"{'it' if len(missing) == 1 else 'them'} counts as transfer"
        )
    for rank, why in sorted(everybody.unread.items()):
        yield f"rank {rank} is left out: {masks.text(why)}"
    least = min((rank.stride for rank in seen.values()), default=1)
    for stride in sorted({rank.stride for rank in seen.values()} - {least}):
        ranks = name_ranks(sorted(rank for rank, scan in seen.items() if scan.stride == stride))
        yield (
            f"{ranks} kept 1 of {stride} windows of 64 batches, others {describe_kept(least)}: "
            "collectives in windows that not all ranks kept count as not begun by all"
        )
    steps_of = {rank: scan.steps for rank, scan in seen.items() if scan.stride == least}
    longest = max(steps_of.values(), default=0)
    for steps in sorted(set(steps_of.values()) - {longest}):
        who = name_ranks(sorted(rank for rank in steps_of if steps_of[rank] == steps))
        yield (
            f"{who} completed {steps} of {longest} steps"
            if least == 1  # otherwise no rank kept all steps
            else f"{who} completed {steps} of the {longest} steps that others kept"
        )
    ended = ("ended", "ended by its own program: everything up to then is shown")
    cut = ("cut", "killed: everything up to then is shown")
    left = {
        rank for rank, scan in seen.items() if scan.state == "cut" and scan.left_after is not None
    }
    for rank in sorted(left):
        batches = counted(seen[rank].left_after or 0, "batch", "batches")
        yield f"rank {rank} left its loop after {batches} of its last epoch, and was killed later"
    for state, message in (cut, ended, ("live", "still running")):
        these = sorted(
            rank for rank, scan in seen.items() if scan.state == state and rank not in left
        )
        if these:
            one, several = ("is", "are") if state == "live" else ("was", "were")
            yield f"{name_ranks(these)} {one if len(these) == 1 else several} {message}"
    for why in sorted({why for rank in seen.values() for why in rank.unseen}):
        yield (
            f"{name_ranks(sorted(rank for rank, scan in seen.items() if why in scan.unseen))}: "
            f"{why}"
        )


def _kinds(envelope: Envelope, spent: Sequence[Spent]) -> tuple[list[_KindCost], int, int]:
    """Return the kinds that move most bytes.

    How many collectives are incomplete, and how many there are, comes with them.
    """
    counts: dict[CollectiveLabel, int] = {}
    incomplete = total = 0
    for key in sorted(envelope.groups):
        rows = envelope.groups[key].rows
        there, n = rows["ranks"] > 0, len(key.ranks)
        total += int(there.sum())
        incomplete += int((there & (rows["ranks"] < n)).sum())
        if there.any():
            kinds, number = np.unique(rows[there][["kind", "nbytes"]], return_counts=True)
            for (kind, nbytes), times in zip(kinds.tolist(), number.tolist(), strict=True):
                label = CollectiveLabel(OPERATION_KINDS[kind], nbytes, n)
                counts[label] = counts.get(label, 0) + times
    most = sorted(counts, key=lambda label: (-label.nbytes * counts[label], label))[:_MOST_KINDS]
    return (
        [_KindCost(*label, counts[label], _busbw(label, spent)) for label in most],
        incomplete,
        total,
    )


def _busbw(label: CollectiveLabel, spent: Sequence[Spent]) -> float | None:
    took = [
        moved.ns / moved.times for cost in spent if (moved := cost.moved.get(label)) is not None
    ]
    return bandwidth_of(label.name, label.nbytes, label.ranks, max(took)).busbw if took else None


def _of_rank(rank: Rank) -> Collectives | None:
    """Read a rank's steps and collectives as feedline recorded them; None: there are neither.

    Raises:
        RunDamaged: its records cannot be read.
    """
    from feedline.analysis.ranks.read_collectives import steps_and_collectives

    collectives = steps_and_collectives(rank)
    return collectives if len(collectives.steps) or len(collectives.table) else None


def reduce_ranks(
    urls: Sequence[str], pool: RankPool, load: Load = _of_rank, tell: Tell = silent
) -> Many:
    """Read every rank twice and add up how long they wait for each other.

    Never holds more than a few ranks at once.

    Args:
        urls: run folders, of one run: paths or addresses.
        pool: of workers.
        load: reads a rank's collectives; a function of a module, so that workers can find it.
        tell: called with what is being done, how many ranks are done, and of how many.

    Raises:
        RunNotFound, RunDamaged, MissingDependency: see ``find_sources``; RunDamaged also when no
            rank can be read.
        WorkersLost: the workers are gone.
    """
    there = find_sources(urls)
    everybody = _surveyed(there.found, pool, load, tell)
    # minimum and maximum forget what they are of: the others are read again
    if strange := foreign_ranks(everybody.seen):
        kept = _surveyed(
            [source for source in there.found if source.rank not in strange], pool, load, tell
        )
        everybody = replace(kept, unread={**kept.unread, **strange})
    if not everybody.seen:
        first = min(everybody.unread)
        raise RunDamaged(
            f"no rank of {', '.join(urls)} can be read; rank {first}: {everybody.unread[first]}"
        )
    bound, why = _bound_ns(everybody)
    readable = [source for source in there.found if source.rank in everybody.seen]
    shared = pool.share(everybody)
    spent: list[Spent] = []
    for costs in each(
        pool, split_steps, chunked(readable, _CHUNK), (shared, load, bound), "splitting steps", tell
    ):
        spent += costs
    return _put_together(
        everybody, sorted(spent, key=lambda cost: cost.rank), [*there.notes, *why], bound
    )


def _surveyed(chosen: Sequence[RankSource], pool: RankPool, load: Load, tell: Tell) -> Survey:
    """Return the first pass over all of them."""
    everybody = Survey()
    for part in each(pool, survey_ranks, chunked(chosen, _CHUNK), (load,), "reading ranks", tell):
        everybody = everybody.merge(part)
    return everybody


def _bound_ns(everybody: Survey) -> tuple[float, list[str]]:
    """Return the error of the clocks between ranks: the sum of the two largest; 0 for one rank.

    Returns:
        ns; inf where waiting cannot be separated from transfer, and why.
    """
    bounds = sorted(seen.clock_bound_ns for seen in everybody.seen.values())
    bound = sum(bounds[-2:]) if len(bounds) > 1 else 0.0
    if not isfinite(bound):
        if not everybody.envelope.groups:
            return bound, []
        return bound, ["the ranks' clocks were not compared: waiting counts as transfer"]
    early = everybody.envelope.contradicting(bound)
    if early > OUTLIERS:
        return inf, [
            f"ranks ended {share(early)} of their collectives before others had begun them: their "
            f"clocks are wrong or their folders belong "
            "to two runs, so waiting counts as transfer"
        ]
    return bound, []
