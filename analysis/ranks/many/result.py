"""How long many ranks wait for each other, with the names of a report's ``ranks.<r>.comm``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.formatting import counted
from feedline.analysis.ranks.bandwidth import bandwidth
from feedline.analysis.ranks.many.envelope import KINDS, Envelope
from feedline.analysis.ranks.many.passes import Label, Spent, Survey
from feedline.analysis.ranks.match import kept
from feedline.profiler.store.run_folder import name_ranks

_SCHEMA_VERSION = 1
_MOST_KINDS = 12  # rows of the table of collectives


@dataclass(frozen=True)
class RankCost:
    """The mean step of one rank, s. The six parts sum to ``step_s``.

    Attributes:
        caused_s: what all other ranks together waited for this one, per step.
    """

    rank: int
    host: str
    steps: int
    step_s: float
    compute_s: float
    hidden_transfer_s: float
    exposed_transfer_s: float
    hidden_wait_s: float
    exposed_wait_s: float
    queue_s: float
    caused_s: float


@dataclass(frozen=True)
class Kind:
    """Collectives of one operation, size of message and group size.

    Attributes:
        busbw_gbps: of the complete ones, as in a report (comm/bandwidth.py). None: none is complete, or waiting cannot be separated from
            transfer.
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
        clock_bound_s: shorter waiting counts as transfer; None: all of it does, as the ranks' clocks were not compared or are wrong.
        incomplete: collectives that not all ranks of their group began.
        samples_per_s: of all ranks together; None: not measured on each.
        together: whether any rank exchanges gradients with others; None: unknown.
    """

    ranks: list[RankCost]
    world_size: int
    clock_bound_s: float | None
    kinds: list[Kind]
    collectives: int
    incomplete: int
    notes: list[str]
    samples_per_s: float | None = None
    together: bool | None = None
    schema_version: int = _SCHEMA_VERSION

    @property
    def late(self) -> list[RankCost]:
        """The ranks that others waited for, the worst first."""
        return sorted((one for one in self.ranks if one.caused_s > 0), key=lambda one: (-one.caused_s, one.rank))


def put_together(everybody: Survey, spent: Sequence[Spent], notes: Sequence[str], bound: float) -> Many:
    """From sums in whole nanoseconds, so that the order in which ranks came does not change a digit."""
    caused: dict[int, int] = {}
    for one in spent:
        for rank, waited in one.blamed_ns.items():
            caused[rank] = caused.get(rank, 0) + waited
    ranks = [_cost(everybody, one, caused.get(one.rank, 0)) for one in spent]
    kinds, incomplete, count = _kinds(everybody.envelope, spent)
    size = max([seen.world_size for seen in everybody.seen.values()], default=0)
    said = [*notes, *_said(everybody, size)]
    rates = [seen.samples_per_s for seen in everybody.seen.values()]
    return Many(
        ranks,
        size,
        bound / 1e9 if np.isfinite(bound) else None,
        kinds,
        count,
        incomplete,
        said,
        sum(rate for rate in rates if rate is not None) if rates and None not in rates else None,
        together([seen.exchanges for seen in everybody.seen.values()]),
    )


def together(exchanges: Sequence[bool | None]) -> bool | None:
    """Whether any rank exchanges gradients; None: unknown."""
    return True if True in exchanges else None if None in exchanges else False


def _cost(everybody: Survey, spent: Spent, caused_ns: int) -> RankCost:
    seen = everybody.seen[spent.rank]
    each = max(1, spent.steps) * 1e9
    parts = {f"{name}_s": value / each for name, value in spent.parts_ns.items()}
    return RankCost(rank=spent.rank, host=seen.host, steps=seen.steps, step_s=spent.step_ns / each, caused_s=caused_ns / each, **parts)


def _said(everybody: Survey, size: int) -> Iterable[str]:
    """Ranks that are missing, unreadable, shorter than the others, cut, or of another launch."""
    seen = everybody.seen
    missing = sorted(set(range(size)) - set(seen) - set(everybody.unread))
    if missing:
        yield f"{name_ranks(missing)} of {size} left no folder: waiting for {'it' if len(missing) == 1 else 'them'} counts as transfer"
    for rank, why in sorted(everybody.unread.items()):
        yield f"rank {rank} is left out: {why}"
    least = min((one.stride for one in seen.values()), default=1)
    for stride in sorted({one.stride for one in seen.values()} - {least}):
        ranks = name_ranks(sorted(rank for rank, one in seen.items() if one.stride == stride))
        yield (
            f"{ranks} kept 1 of {stride} windows of 64 batches, others {kept(least)}: "
            "collectives in windows that not all ranks kept count as not begun by all"
        )
    made = {rank: one.steps for rank, one in seen.items() if one.stride == least}
    longest = max(made.values(), default=0)
    for steps in sorted(set(made.values()) - {longest}):
        yield f"{name_ranks(sorted(rank for rank in made if made[rank] == steps))} completed {steps} of {longest} steps"
    ended = ("ended", "ended by its own program: everything up to then is shown")
    cut = ("cut", "killed: everything up to then is shown")
    left = {rank for rank, one in seen.items() if one.state == "cut" and one.left_after is not None}
    for rank in sorted(left):
        batches = counted(seen[rank].left_after or 0, "batch", "batches")
        yield f"rank {rank} left its loop after {batches} of its last epoch, and was killed later"
    for state, message in (cut, ended, ("live", "still running")):
        these = sorted(rank for rank, one in seen.items() if one.state == state and rank not in left)
        if these:
            yield f"{name_ranks(these)} {'was' if state != 'live' else 'is' if len(these) == 1 else 'are'} {message}"
    for why in sorted({why for one in seen.values() for why in one.unseen}):
        yield f"{name_ranks(sorted(rank for rank, one in seen.items() if why in one.unseen))}: {why}"


def _kinds(envelope: Envelope, spent: Sequence[Spent]) -> tuple[list[Kind], int, int]:
    """The kinds that move most bytes, and how many collectives are incomplete, and how many there are."""
    counts: dict[Label, int] = {}
    incomplete = total = 0
    for key in sorted(envelope.groups):
        rows = envelope.groups[key].rows
        there, n = rows["ranks"] > 0, len(key.ranks)
        total += int(there.sum())
        incomplete += int((there & (rows["ranks"] < n)).sum())
        if there.any():
            each, number = np.unique(rows[there][["kind", "nbytes"]], return_counts=True)
            for (kind, nbytes), times in zip(each.tolist(), number.tolist(), strict=True):
                label = Label(KINDS[kind], nbytes, n)
                counts[label] = counts.get(label, 0) + times
    most = sorted(counts, key=lambda label: (-label.nbytes * counts[label], label))[:_MOST_KINDS]
    return [Kind(*label, counts[label], _busbw(label, spent)) for label in most], incomplete, total


def _busbw(label: Label, spent: Sequence[Spent]) -> float | None:
    took = [moved.ns / moved.times for one in spent if (moved := one.moved.get(label)) is not None]
    return bandwidth(label.name, label.nbytes, label.ranks, max(took)).busbw if took else None
