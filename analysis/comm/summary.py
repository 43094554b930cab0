"""All of communication in one go: from the collectives of every rank to what a report shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.comm import bandwidth, blame, nccl_debug, what_if
from feedline.analysis.comm.buckets import NoTimeline, timeline
from feedline.analysis.comm.clocks import Alignment, align
from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.comm.link import fit
from feedline.analysis.comm.match import Matched, match
from feedline.analysis.comm.model import CollectiveKind, Communication, ExposedKind, LateRank, Prediction, RankParts
from feedline.analysis.comm.partition import BETWEEN, PARTS, Meetings, Partition, columns, meet, partition
from feedline.analysis.comm.question import Question, text
from feedline.analysis.comm.replay import Replayed, refused, thinned
from feedline.analysis.quantities import seconds
from feedline.profiler.ceilings import Ceilings

SHOWN_KINDS = 20
SHOWN_LATE = 8
LINKS = (2.0, 10.0)  # times as fast
BUCKETS_MIB = (10.0, 100.0)  # the default is 25
ACCUMULATE = 4
GIGA = 1e9


@dataclass(frozen=True)
class Compared:
    """What one rank's view cannot tell.

    Attributes:
        communication: of all ranks.
        parts: by rank.
        notes: what is missing, and why.
    """

    communication: Communication
    parts: dict[int, RankParts]
    notes: list[str]


def compare(
    ranks: Sequence[Collectives],
    ceilings: Ceilings | None = None,
    costs: Mapping[int, dict[str, float]] | None = None,
    first: int = 0,
    link_bytes_per_s: float | None = None,
    nccl_lines: Iterable[str] = (),
) -> Compared | None:
    """Compare the ranks of a run. None: fewer than two ranks, or no collective.

    Args:
        costs: rank -> stage of a sample -> wall seconds, to tell what made a late rank's loader late.
        first: steps before it do not count in the means.
        link_bytes_per_s: what the network is specified to give in one direction.
        nccl_lines: output with NCCL_DEBUG=INFO.
    """
    if not any(len(one.table) for one in ranks) or len(_expected(ranks)) < 2:
        return None
    matched = match(ranks)
    alignment = align(ranks, matched)
    met = meet(matched, alignment)
    place = columns(ranks, matched)
    partitions = {one.rank: partition(one, place[one.rank], matched, met, alignment.bound) for one in ranks}
    together = [one for rank in matched.ranks for one in ranks if one.rank == rank]
    lates, predictions = _across(together, matched, met, alignment, partitions, dict(costs or {}), first, ceilings)
    found = bandwidth.kinds(matched, [partitions[rank] for rank in matched.ranks], alignment.bound)
    network = bandwidth.network(found, matched, alignment.bound, ceilings, link_bytes_per_s)
    made = Communication(
        collectives=[collective_kind(kind) for kind in found[:SHOWN_KINDS]],
        clock_bound_s=alignment.bound / GIGA if np.isfinite(alignment.bound) else None,
        clocks=alignment.how,
        late=lates,
        network=network.says,
        network_share=network.share,
        what_if=predictions,
        nccl=nccl_debug.read(nccl_lines).says(),
        exposed={str(rank): exposed(part, first) for rank, part in partitions.items()},
        unseen=sorted({why for one in ranks for why in one.unseen}),
    )
    notes = [*matched.notes, *alignment.notes, *_unended(partitions)]
    return Compared(made, {rank: means(part, first) for rank, part in partitions.items()}, notes)


def _expected(ranks: Sequence[Collectives]) -> set[int]:
    return {rank for one in ranks for group in one.groups for rank in group.ranks} | {one.rank for one in ranks}


def means(part: Partition, first: int) -> RankParts:
    """Of the steps from the first that counts on; waiting is None for a rank that met no other."""
    counted = {name: values[first:] if len(values) > first else values for name, values in part.parts.items()}
    known = {name: len(counted[name]) > 0 and (part.met or name not in BETWEEN) for name in PARTS}
    return RankParts(**{f"{name}_s": float(counted[name].mean()) / GIGA if known[name] else None for name in PARTS})


def exposed(part: Partition, first: int) -> list[ExposedKind]:
    """Mean seconds a step of the transfer that no backward covers, by what moved, the most first. They sum to exposed_transfer_s."""
    counted = {what: values[first:] if len(values) > first else values for what, values in part.exposed.items()}
    found = [ExposedKind(*what, float(values.mean()) / GIGA) for what, values in counted.items() if values.any()]
    return sorted(found, key=lambda one: -one.transfer_s)


def _across(
    ranks: Sequence[Collectives],
    matched: Matched,
    met: Meetings,
    alignment: Alignment,
    partitions: Mapping[int, Partition],
    costs: dict[int, dict[str, float]],
    first: int,
    ceilings: Ceilings | None,
) -> tuple[list[LateRank], list[Prediction]]:
    """Late ranks, and answers of the replay."""
    if len(ranks) < 2 or not np.isfinite(alignment.bound):
        return [], []
    ordered = [partitions[rank] for rank in matched.ranks]
    found = blame.blame(ranks, ordered, matched, met, alignment.bound)
    lates = blame.summary(found, ranks, first)
    try:
        made = thinned(timeline(ranks, matched, met, first))
    except NoTimeline as reason:
        return (
            [late_rank(late, costs, None) for late in lates[:SHOWN_LATE]],
            [_prediction(refused(Question("as_it_was"), str(reason)))],
        )
    asked = what_if.WhatIf(made, fit(made, matched, ordered), _limit(ceilings))
    column = {rank: number for number, rank in enumerate(matched.ranks)}
    told = asked.as_it_was().low is not None  # else the replay is too far from the run
    shown = [late_rank(late, costs, float(asked.cost(column[late.rank]).mean()) if told else None) for late in lates[:SHOWN_LATE]]
    always = lates[0].rank if lates and lates[0].persistent else None
    late = asked.no_straggler() if always is None else asked.no_straggler(column[always], always)
    return shown, [_prediction(one) for one in questions(asked, late, what_if.micro_batches(ranks))]


def questions(asked: what_if.WhatIf, late: Replayed, micro_s: what_if.FloatArray) -> list[Replayed]:
    """What a report answers, the run itself first. ``late``: the answer without the rank that is always late, or without any late one."""
    return [
        asked.as_it_was(),
        late,
        *(asked.faster_link(times) for times in LINKS),
        asked.half_gradients(),
        *(asked.bucket_size(mib) for mib in BUCKETS_MIB),
        asked.accumulate(ACCUMULATE, micro_s),
    ]


def _limit(ceilings: Ceilings | None) -> float | None:
    """The fastest bus bandwidth that a probe saw."""
    rates = [one.settings.get("bus_bytes_per_s") for one in ceilings.ceilings if one.part == "all_reduce"] if ceilings else []
    return max((float(rate) for rate in rates if isinstance(rate, (int, float))), default=None)


def late_rank(late: blame.Late, costs: dict[int, dict[str, float]], cost_s: float | None) -> LateRank:
    """For the report.

    Args:
        costs: rank -> stage of a sample -> mean wall seconds, where that is known.
        cost_s: what the mean step would be shorter by without its lateness.
    """
    inside = blame.part_of_sample(costs, late.rank) if late.phase == "wait" else None
    return LateRank(
        rank=late.rank,
        steps=late.steps[0],
        late_steps=late.steps[1],
        all_steps=late.steps[2],
        late_s=late.late_s,
        waited_s=late.waited_s,
        phase=late.phase,
        excess_s=late.phases.get(late.phase, 0.0),
        part=inside[0] if inside else None,
        cost_s=cost_s,
        persistent=late.persistent,
        whole_host=late.whole_host,
    )


def collective_kind(kind: bandwidth.Kind) -> CollectiveKind:
    """For the report."""
    algbw, busbw = (None if rate is None else rate / GIGA for rate in (kind.algbw, kind.busbw))
    return CollectiveKind(kind.name, kind.nbytes, kind.ranks, kind.backend, kind.count, kind.transfer_s, algbw, busbw)


def _prediction(one: Replayed) -> Prediction:
    return Prediction(one.asked.id, one.asked.value, text(one.asked), one.step_s, one.low, one.high, one.gain_s, one.why)


def _unended(partitions: Mapping[int, Partition]) -> list[str]:
    """Collectives whose end nobody could tell, by the share of a rank's entries."""
    counted = sum(part.unended for part in partitions.values())
    every = sum(len(part.moving) for part in partitions.values())
    if not counted:
        return []
    seen = sum(float(values.sum()) / GIGA for part in partitions.values() for values in part.parts.values())
    return [
        f"the ends of {counted} of {every} collectives could not be told: what they took of {seconds(seen)} of all ranks counts as compute"
    ]
