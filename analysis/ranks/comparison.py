"""The comparison of the ranks of a run.

It goes from their folders, or their collectives, to what a report shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.intervals import FloatArray, overlap
from feedline.analysis.measure.model import Throughput
from feedline.analysis.measure.rank_metrics import RankMetrics, step_summary
from feedline.analysis.measure.rank_metrics import throughput as gather_throughput
from feedline.analysis.ranks import bandwidth, blame, nccl_debug, replay
from feedline.analysis.ranks.buckets import Link, NoTimeline, Timeline, cut_timeline
from feedline.analysis.ranks.communication import (
    MIN_EXPOSED_SHARE,
    Communication,
    ExposedKind,
    LateRank,
    Prediction,
    RankParts,
)
from feedline.analysis.ranks.cross_rank import CrossRank, combine
from feedline.analysis.ranks.partition import (
    BACKWARD,
    KNOWN_BY_COMPARISON,
    RANK_PARTS,
    Partition,
    computing_spans,
    without_holes,
)
from feedline.analysis.ranks.read_collectives import collectives_of, unrecorded_communication
from feedline.analysis.ranks.replay import Question, refuse
from feedline.analysis.ranks.shared_cpus import RankCpu
from feedline.analysis.text.formatting import share
from feedline.analysis.traces.collectives import UNKNOWN_HOST, Collectives, operation
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import FeedlineError

#: Steps that a replay looks at: evenly chosen from longer runs.
_MOST_STEPS = 400
# largest over smallest message from which on latency and bandwidth can be distinguished
_APART = 4.0

_SHOWN_KINDS = 20
_SHOWN_LATE = 8
_LINKS = (2.0, 10.0)  # times as fast
_BUCKETS_MIB = (10.0, 100.0)  # the default is 25
_ACCUMULATE = 4
_GB = 1e9
_MOST = 0.5  # of the bytes that are all-reduced in backward
_SLOWER = 0.1  # samples of a rank, than those of the others: less does not make it late


@dataclass(frozen=True)
class Compared:
    """What only all ranks together show.

    Attributes:
        communication: of all ranks.
        parts: by rank.
        notes: what is missing, and why.
        ddp: DistributedDataParallel is known to send most of what is all-reduced in backward.
            Activations of tensor parallelism are all-reduced there as well.
        sharded: what is reduce-scattered in backward is gradients, and what is gathered
            parameters (``_is_sharded``).
    """

    communication: Communication
    parts: dict[int, RankParts]
    notes: list[str]
    ddp: bool = False
    sharded: bool = False


def _compare_collectives(
    ranks: Sequence[Collectives],
    ceilings: Ceilings | None = None,
    costs: Mapping[int, dict[str, float]] | None = None,
    first: int = 0,
    link_bytes_per_s: float | None = None,
    nccl_lines: Iterable[str] = (),
    cpus: Mapping[int, RankCpu] | None = None,
    hook: bool = False,
) -> Compared | None:
    """Compare the ranks of a run; None: fewer than two ranks, or no collective.

    Args:
        ranks: collectives of each.
        ceilings: what was probed; None: nothing was.
        costs: rank -> stage of a sample -> wall seconds, to tell what made a late rank's loader
            late.
        first: steps before it do not count in the means.
        link_bytes_per_s: what the network is specified to give in one direction.
        nccl_lines: output with NCCL_DEBUG=INFO.
        cpus: rank -> what its step takes of the CPUs that it shares with others; None, or some
            missing: it is taken to have enough.
        hook: DistributedDataParallel has one in Python, which sends its buckets.
    """
    if not any(len(rank.table) for rank in ranks) or len(_expected(ranks)) < 2:
        return None
    together = combine(ranks)
    ddp = _reduces_by_ddp(ranks, hook)
    lates, predictions = (
        _across(together, dict(costs or {}), first, ceilings, dict(cpus or {}), ddp)
        if together.comparable
        else ([], [])
    )
    comm = replace(
        describe_communication(together, lates, first, ceilings, link_bytes_per_s),
        what_if=predictions,
        nccl=nccl_debug.read(nccl_lines).says(),
        unseen=sorted({why for rank in ranks for why in rank.unseen}),
        hosts=_count_hosts(ranks),
    )
    notes = [*together.matched.notes, *together.alignment.notes, *_unended(together.partitions)]
    return Compared(
        comm,
        {rank: mean_parts(part, first) for rank, part in together.partitions.items()},
        notes,
        ddp,
        _is_sharded(ranks),
    )


def _count_hosts(ranks: Sequence[Collectives]) -> int | None:
    """Count the hosts of the ranks; None: that of some is unknown."""
    hosts = {rank.host for rank in ranks}
    return None if UNKNOWN_HOST in hosts else len(hosts)


def _reduces_by_ddp(ranks: Sequence[Collectives], hook: bool) -> bool:
    """Return ``Compared.ddp``; what a hook in Python sends is not seen to be a bucket."""
    sent = buckets = 0
    for rank in ranks:
        reduced = np.array([operation(name) == "all_reduce" for name in rank.names] or [False])
        inside = reduced[rank.table["name"]] & (rank.table["phase"] == BACKWARD)
        sent += int(rank.table["nbytes"][inside].sum())
        buckets += int(rank.table["nbytes"][inside & rank.table["bucket"]].sum())
    return sent > 0 and (buckets >= _MOST * sent or not buckets and hook)


def _is_sharded(ranks: Sequence[Collectives]) -> bool:
    """Tell whether ranks hold shards of the parameters, as with FSDP.

    Gradients are then scattered in backward. Sequence parallelism scatters activations in forward
    too, and what is gathered to be compared, beside DistributedDataParallel, is none of either.
    """
    scattering = set()
    for rank in ranks:
        scatters = np.array([operation(name) == "reduce_scatter" for name in rank.names] or [False])
        scattering |= set(rank.table["phase"][scatters[rank.table["name"]]].tolist())
    return scattering == {BACKWARD} and not any(rank.table["bucket"].any() for rank in ranks)


def describe_communication(
    together: CrossRank,
    lates: Sequence[LateRank],
    first: int = 0,
    ceilings: Ceilings | None = None,
    link_bytes_per_s: float | None = None,
) -> Communication:
    """Compare ranks that are on one clock already, whoever recorded them.

    Arguments as of ``compare_collectives``.
    """
    listed = bandwidth.collective_kinds(together)
    network = bandwidth.judge_network(listed, together, ceilings, link_bytes_per_s)
    return Communication(
        collectives=listed[:_SHOWN_KINDS],
        clock_bound_s=together.bound / _GB if np.isfinite(together.bound) else None,
        clocks=together.alignment.how,
        late=list(lates[:_SHOWN_LATE]),
        network=network.message,
        network_share=network.share,
        what_if=[],
        nccl=[],
        unseen=[],
        exposed={str(rank): _exposed(part, first) for rank, part in together.partitions.items()},
    )


def _expected(ranks: Sequence[Collectives]) -> set[int]:
    return {rank for of_rank in ranks for group in of_rank.groups for rank in group.ranks} | {
        rank.rank for rank in ranks
    }


def mean_parts(part: Partition, first: int) -> RankParts:
    """Return the mean parts of the steps from the first that counts on.

    Waiting is None for a rank that met no other.
    """
    counted = {
        name: values[first:] if len(values) > first else values
        for name, values in part.parts.items()
    }
    known = {
        name: len(counted[name]) > 0 and (part.met or name not in KNOWN_BY_COMPARISON)
        for name in RANK_PARTS
    }
    return RankParts(
        **{
            f"{name}_s": float(counted[name].mean()) / _GB if known[name] else None
            for name in RANK_PARTS
        }
    )


def _exposed(part: Partition, first: int) -> list[ExposedKind]:
    """Return the mean seconds per step of the transfer that no backward covers, by what moved.

    The most come first. They sum to exposed_transfer_s.
    """
    counted = {
        what: values[first:] if len(values) > first else values
        for what, values in part.exposed.items()
    }
    exposed = [
        ExposedKind(*what, float(values.mean()) / _GB)
        for what, values in counted.items()
        if values.any()
    ]
    return sorted(exposed, key=lambda item: -item.transfer_s)


def _across(
    together: CrossRank,
    costs: dict[int, dict[str, float]],
    first: int,
    ceilings: Ceilings | None,
    cpus: dict[int, RankCpu],
    ddp: bool,
) -> tuple[list[LateRank], list[Prediction]]:
    """Return the late ranks, and answers of the replay.

    How gradients are sent is asked only if they are known to be what is sent (``Compared.ddp``).
    """
    late_ranks = blame.list_late_ranks(blame.blame_steps(together, first), together.ranks, first)
    lates = [
        replace(late, part=_part_of_sample(costs, late.rank)) if late.phase == "wait" else late
        for late in late_ranks
    ]
    try:
        buckets = _thin_steps(cut_timeline(together, first))
    except NoTimeline as reason:
        return lates, [refuse(Question("as_it_was"), str(reason))]
    asked = replay.BucketReplay(
        buckets, _fit_link(buckets, together), _limit(ceilings), _sharing(together, first, cpus)
    )
    column = {rank: number for number, rank in enumerate(together.matched.ranks)}
    if asked.as_it_was().low is not None:  # else the replay is too far from the run
        shown = lates[:_SHOWN_LATE]
        lates = [
            replace(late, cost_s=float(asked.cost(column[late.rank]).mean())) for late in shown
        ]
    always = lates[0].rank if lates and lates[0].persistent else None
    late = asked.no_straggler() if always is None else asked.no_straggler(column[always], always)
    # the CPUs that ranks share may give less than the replay alone says
    if always is not None and late.step_s is not None:
        lates[0] = replace(lates[0], cost_s=late.gain_s)
    return lates, _questions(
        asked,
        late,
        _micro_batch_seconds(together.ranks, first),
        _backward_passes(together.ranks[0], buckets) if ddp else None,
    )


def _part_of_sample(costs: dict[int, dict[str, float]], rank: int) -> str | None:
    """Return the stage of a sample that makes samples slow on a rank, against the others' median.

    None: samples take no longer there than on the others, no stage is half of what they take more,
    or they were not measured.

    Args:
        costs: rank -> stage of a sample -> mean wall seconds.
        rank: its number.
    """
    own = costs.get(rank)
    others = [cost for number, cost in costs.items() if number != rank and cost]
    if not own or not others:
        return None
    excess: list[tuple[str, float]] = [
        (stage, wall - float(np.median([cost.get(stage, 0.0) for cost in others])))
        for stage, wall in own.items()
        if stage not in ("total", "transport")
    ]
    stage, most = max(excess, key=lambda pair: pair[1], default=("", 0.0))
    more = sum(seconds for _, seconds in excess)
    usual = sum(own[stage] for stage, _ in excess) - more
    return stage if most >= more / 2 > 0 and more >= _SLOWER * usual else None


def _sharing(
    together: CrossRank, first: int, cpus: dict[int, RankCpu]
) -> dict[int, tuple[RankCpu, float]]:
    """Return what the step of each column's rank takes of the CPUs.

    The seconds in which its main thread sleeps for itself are with it. Empty: not known of all.
    """
    ranks = together.matched.ranks
    if any(rank not in cpus for rank in ranks):
        return {}
    own_s = [mean_parts(together.partitions[rank], first).compute_s or 0.0 for rank in ranks]
    return {
        column: (cpus[rank], max(0.0, s - cpus[rank].busy_s))
        for column, (rank, s) in enumerate(zip(ranks, own_s))
    }


def _questions(
    asked: replay.BucketReplay, late: Prediction, micro_s: replay.FloatArray, passes: int | None = 1
) -> list[Prediction]:
    """List what a report answers, the run itself first.

    Args:
        asked: the replay.
        late: the answer without the rank that is always late, or without any late one.
        micro_s: as of ``WhatIf.accumulate``.
        passes: backward passes per step; with more than one the program accumulates gradients.
            None: what is sent is not known to be gradients.
    """
    whatever = [asked.as_it_was(), late, *(asked.faster_link(times) for times in _LINKS)]
    if passes is None:
        return whatever
    return [
        *whatever,
        asked.half_gradients(),
        *(asked.bucket_size(mib) for mib in _BUCKETS_MIB),
        *([asked.no_sync(passes)] if passes > 1 else [asked.accumulate(_ACCUMULATE, micro_s)]),
    ]


def _limit(ceilings: Ceilings | None) -> float | None:
    """Return the fastest bus bandwidth that a probe saw."""
    rates = (
        [
            ceiling.settings.get("bus_bytes_per_s")
            for ceiling in ceilings.ceilings
            if ceiling.part == "all_reduce"
        ]
        if ceilings
        else []
    )
    return max((float(rate) for rate in rates if isinstance(rate, (int, float))), default=None)


def _unended(partitions: Mapping[int, Partition]) -> list[str]:
    """Return the collectives without a known end."""
    counted = sum(part.unended for part in partitions.values())
    every = sum(len(part.moving) for part in partitions.values())
    return (
        [f"{counted} of {every} collectives have no known end: their time counts as compute"]
        if counted
        else []
    )


@dataclass(frozen=True)
class NetworkHints:
    """What no run folder holds.

    Attributes:
        link_bytes_per_s: what the network is specified to give a rank, in one direction.
        nccl_lines: output of the training with NCCL_DEBUG=INFO.
    """

    link_bytes_per_s: float | None = None
    nccl_lines: tuple[str, ...] = ()


NO_HINTS = NetworkHints()


def compare_recorded(
    gathered: Mapping[int, RankMetrics],
    shown: RankMetrics,
    ceilings: Ceilings | None,
    hints: NetworkHints,
    notes: list[str],
    cpus: Mapping[int, RankCpu],
) -> Compared | None:
    """Compare the recorded ranks of a run; None: there is one rank only, or no collective.

    Notes say why where several ranks trained.

    Args:
        gathered: rank -> its measures.
        shown: the rank whose first steps are left out of the means.
        ceilings: what was probed; None: nothing was.
        hints: what the user knows of the network.
        notes: what is missing is appended.
        cpus: by rank, what its mean step takes of the CPUs that it shares with others.
    """
    collectives = []
    for number, rank in gathered.items():
        try:
            one = collectives_of(rank.rank)
        except FeedlineError as error:
            notes.append(f"the collectives of rank {number} cannot be read: {error}")
            continue
        if one is not None:
            collectives.append(one)
    comparison = _compare_collectives(
        collectives,
        ceilings,
        _costs(gathered),
        shown.first,
        hints.link_bytes_per_s,
        hints.nccl_lines,
        cpus,
        hook=shown.rank.manifest.training.get("ddp_hook") is True,
    )
    if comparison is not None:
        notes.extend(comparison.notes)
    elif len(gathered) > 1:
        notes.append(
            "no collective of several ranks was recorded, so it is unknown how long ranks wait "
            "for each other"
        )
    notes.extend(_unrecorded(gathered))
    return comparison


def _unrecorded(gathered: Mapping[int, RankMetrics]) -> list[str]:
    """Return the libraries whose communication was not recorded.

    With them comes how much of the step is unexplained on the rank where that is most.
    """
    shares: dict[str, list[float]] = {}
    for rank in gathered.values():
        for why in unrecorded_communication(rank.rank):
            shares.setdefault(why, [])
            if rank.steps is not None and (whole := rank.steps.wall[rank.first :].sum()):
                shares[why].append(float(rank.steps.stages["other"][rank.first :].sum() / whole))
    return [
        f"{why}; no stage explains {share(max(parts))} of the mean step" if parts else why
        for why, parts in shares.items()
    ]


def choose_shown_rank(gathered: Mapping[int, RankMetrics], compared: Compared | None) -> int:
    """Choose the rank that a report shows: the one that all others wait for, else the lowest."""
    lowest = min(gathered)
    late = compared.communication.late[:1] if compared else []
    step = step_summary(gathered[lowest])
    if not late or not late[0].persistent or late[0].rank not in gathered or step is None:
        return lowest
    return (
        late[0].rank
        if (late[0].cost_s or late[0].waited_s) >= MIN_EXPOSED_SHARE * step.mean_s
        else lowest
    )


def first_failed(gathered: Mapping[int, RankMetrics]) -> int:
    """Return the rank that says how the run ended: the first that an exception of its own ended.

    Others fail later, or are killed.
    """
    ends = {number: rank.rank.manifest for number, rank in gathered.items()}
    failed = [
        number for number, end in ends.items() if end.exit_code and end.ended_by and end.anchors
    ]
    return min(
        failed,
        key=lambda number: (ends[number].anchors[-1]["time_ns"], number),
        default=min(gathered),
    )


def throughput(gathered: Mapping[int, RankMetrics], of: RankMetrics) -> Throughput:
    """Return the throughput of one rank, and of all ranks together where it was measured on each."""
    own = gather_throughput(of)
    rates = [gather_throughput(rank).samples_per_s for rank in gathered.values()]
    if len(rates) < 2 or None in rates:
        return own
    return replace(
        own,
        ranks=len(rates),
        all_ranks_samples_per_s=sum(rate for rate in rates if rate is not None),
    )


def _costs(gathered: Mapping[int, RankMetrics]) -> dict[int, dict[str, float]]:
    """Return mean wall seconds by rank and stage of a sample, where samples were seen."""
    costs = {}
    for number, rank in gathered.items():
        if rank.samples:
            costs[number] = {stage: cost.wall_s for stage, cost in rank.sample_costs.items()}
    return costs


def _backward_passes(first: Collectives, buckets: Timeline) -> int:
    """Return how often backward runs in a step of the timeline, on the first rank."""
    spans = np.sort(first.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)[:, 0])
    step = first.step_at(spans)
    each = np.bincount(step[step >= 0], minlength=len(first.steps))[buckets.numbers]
    return int(np.median(each)) if len(each) else 0


def _fit_link(buckets: Timeline, together: CrossRank) -> Link:
    """Fit a link to bytes and the time in which they moved.

    It is not fitted to the steps, so that a replay can be compared with the measured steps.
    """
    # [steps, buckets], of the rank whose bytes moved longest; nan: unknown
    moved = together.moving()[buckets.rows].max(2) / 1e9
    sizes = np.broadcast_to(buckets.bus_bytes, moved.shape)
    known_bytes = moved > 0  # nan is not
    if not known_bytes.any():
        return Link(float("inf"), 0.0, False)
    alpha, known = _latency(moved[known_bytes], sizes[known_bytes])
    bytes_per_s = float(sizes[known_bytes].sum() / max((moved[known_bytes] - alpha).sum(), 1e-9))
    return Link(
        bytes_per_s, alpha, known, np.where(known_bytes, moved / (alpha + sizes / bytes_per_s), 1.0)
    )


def _latency(moved: np.ndarray, sizes: np.ndarray) -> tuple[float, bool]:
    """Return (seconds, whether sizes differ enough).

    The seconds are the line through the medians of the smallest and the largest size.
    """
    small, large = sizes.min(), sizes.max()
    if large < _APART * max(small, 1):
        return 0.0, False
    low, high = float(np.median(moved[sizes == small])), float(np.median(moved[sizes == large]))
    slope = max(high - low, 0.0) / (large - small)
    return max(low - slope * small, 0.0), True


def _thin_steps(buckets: Timeline) -> Timeline:
    """Keep at most _MOST_STEPS of its steps."""
    if len(buckets.period) <= _MOST_STEPS:
        return buckets
    chosen = np.linspace(0, len(buckets.period) - 1, _MOST_STEPS).astype(np.int64)
    return replace(
        buckets,
        ready=buckets.ready[chosen],
        period=buckets.period[chosen],
        numbers=buckets.numbers[chosen],
        rows=buckets.rows[chosen],
    )


def _micro_batch_seconds(ranks: Sequence[Collectives], first: int = 0) -> FloatArray:
    """Return the mean seconds of a batch on each rank: float64 [ranks].

    Per step, without the optimizer and waiting for collectives: what a program does between its
    steps is taken to belong to the batch. Steps before the first that counts are left out.
    """
    means = []
    for rank in ranks:
        if not len(rank.steps):
            return np.zeros(0)
        ended = rank.table[rank.table["end"] >= rank.table["start"]]
        in_flight = np.stack([ended["start"], ended["end"]], 1)
        once = [
            rank.stages.get(stage, np.zeros((0, 2), np.int64)).reshape(-1, 2)
            for stage in ("optimizer", "backward")
        ]
        pieces = without_holes(
            np.concatenate(
                [
                    without_holes(rank.steps, np.concatenate([*once, in_flight])),
                    computing_spans(rank),
                ]
            ),
            rank.evaluation,
        )
        means.append(
            float(
                overlap(*rank.steps[first if len(rank.steps) > first else 0 :].T, *pieces.T).mean()
            )
            / 1e9
        )
    return np.array(means)
