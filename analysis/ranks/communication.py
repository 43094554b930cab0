"""What the ranks did together, as a report has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from feedline.analysis.text.formatting import count, seconds

MIN_EXPOSED_SHARE = 0.05  # of the step: less is not worth a finding

QuestionId = Literal[
    "as_it_was",
    "no_late_rank",
    "rank_on_time",
    "faster_link",
    "half_gradients",
    "bucket_size",
    "accumulation",
    "no_sync",
]
SHARES = 3  # ranks that are named where another one is late in each step
#: Phase of a rank that was late already when its trace began.
BEFORE_TRACE = "before_trace"


@dataclass(frozen=True)
class CollectiveKind:
    """Collectives of one operation and size.

    Bandwidths in GB/s = 1e9 bytes/s, as nccl-tests count them (doc/PERFORMANCE.md).

    Attributes:
        name: Operation: all_reduce, reduce_scatter, all_gather, ..., send_recv (a message of one
            rank to another).
        bytes: The full message; the larger side of all_gather and reduce_scatter. Unit: B.
        n: Size of its group. Unit: ranks.
        backend: gloo, nccl, ....
        count: How many, each counted once for all ranks.
        transfer_s: Median time in which its bytes moved, without waiting for ranks. Unit: s. None:
            no end was seen, a rank of its group left no records, or clocks cannot be compared.
        algbw_gbps: bytes divided by the mean time in which they moved, on the rank where it is
            longest; 1 GB = 1e9 B. Unit: GB/s. None: as transfer_s, or no bytes.
        busbw_gbps: algbw_gbps times the factor of the operation and n (nccl-tests, PERFORMANCE.md).
            Unit: GB/s. None: as algbw_gbps.
    """

    name: str
    bytes: int
    n: int
    backend: str
    count: int
    transfer_s: float | None
    algbw_gbps: float | None
    busbw_gbps: float | None


@dataclass(frozen=True)
class LateRank:
    """A rank that others waited for.

    Attributes:
        rank: Its number.
        steps: Steps in which it was the late rank. Unit: steps.
        late_steps: Steps in which any rank was late by more than the clocks' error. Unit: steps.
        all_steps: Steps examined. Unit: steps.
        late_s: How much later than the median of the others it began, mean over its late steps.
            Unit: s.
        waited_s: How long each other rank waited for it, mean over its late steps. Unit: s.
        phase: What took it longer: wait (for its loader), copy, forward, backward, optimizer,
            other, or a user's stage.
        excess_s: How much longer that took than on the median of the others, mean over its late
            steps. Unit: s.
        part: The stage of a sample that takes longer there. None: phase is not wait, or samples
            were not measured on two ranks.
        cost_s: How much shorter the mean step would be if this rank were as fast as the median of
            the others. Unit: s. None: no replay.
        persistent: true: the same rank again and again; false: it changes from step to step, or
            there are too few steps to tell.
        whole_host: true: all ranks of its host are late, and no others.
    """

    rank: int
    steps: int
    late_steps: int
    all_steps: int
    late_s: float
    waited_s: float
    phase: str
    excess_s: float
    part: str | None
    cost_s: float | None
    persistent: bool
    whole_host: bool


def describe_late_ranks(lates: Sequence[LateRank]) -> str:
    """Say who was late: ``rank 0 in 56, rank 1 in 40 of the 96 steps with a late rank``."""
    most = sorted(lates, key=lambda late: -late.steps)[:SHARES]
    shares = ", ".join(f"rank {late.rank} in {count(late.steps)}" for late in most)
    return f"{shares} of the {count(most[0].late_steps)} steps with a late rank"


@dataclass(frozen=True)
class Prediction:
    """What the mean step would be if something about the communication were different.

    Attributes:
        id: Stable name of what is different. The first, as_it_was, is the run itself, replayed.
        value: The rank that is on time (rank_on_time), how many times as fast the link is
            (faster_link), the buckets' MiB (bucket_size), or batches per update (accumulation).
            None: the id says everything.
        what: `id` and `value` in words.
        step_s: Mean step with the change. Unit: s. None: refused; the reason is in `why`.
        low: Lower end of its 95 % interval. Unit: s. None: refused.
        high: Upper end. Unit: s. None: refused.
        gain_s: The measured mean step less step_s; 0 if refused. Unit: s.
        why: Why it was refused; empty otherwise.
    """

    id: QuestionId
    value: float | None
    what: str
    step_s: float | None
    low: float | None
    high: float | None
    gain_s: float
    why: str


@dataclass(frozen=True)
class RankParts:
    """What a rank's mean step goes to, in seconds; the parts sum to it.

    None: it met no other rank, so its transfer holds the waiting.

    Attributes:
        compute_s: Everything else: what is neither transfer nor waiting. Unit: s. None: no step of
            this rank counts.
        hidden_transfer_s: Per step: time in which bytes moved, hidden behind the rank's own
            backward pass (docs/rules/exposed_communication.md, Hidden). Unit: s. None: no step of
            this rank counts.
        exposed_transfer_s: Per step: time in which bytes moved, not hidden. Unit: s. None: no step
            of this rank counts.
        hidden_wait_s: Per step: waiting for another rank, hidden behind the rank's own backward
            pass. Unit: s. None: none of its collectives can be compared with another rank's: its
            transfer then includes the waiting.
        exposed_wait_s: Per step: waiting for another rank, not hidden. Unit: s. None: none of its
            collectives can be compared with another rank's: its transfer then includes the waiting.
        queue_s: Per step: collectives queued behind one that waited. Unit: s. None: none of its
            collectives can be compared with another rank's: its transfer then includes the waiting.
    """

    compute_s: float | None
    hidden_transfer_s: float | None
    exposed_transfer_s: float | None
    hidden_wait_s: float | None
    exposed_wait_s: float | None
    queue_s: float | None

    @property
    def wait_s(self) -> float:
        """Waiting for other ranks, hidden or not, as far as it is known."""
        return (self.hidden_wait_s or 0.0) + (self.exposed_wait_s or 0.0)

    @property
    def transfer_s(self) -> float:
        """Moving bytes, hidden or not, as far as it is known."""
        return (self.hidden_transfer_s or 0.0) + (self.exposed_transfer_s or 0.0)


@dataclass(frozen=True)
class ExposedKind:
    """Collectives of one operation, called in one phase of the step.

    Their time is what no backward covers of their transfer.

    Attributes:
        name: Operation: all_reduce, all_gather, ....
        phase: Phase of the step in which the collective was called: forward, backward, optimizer,
            loader, init or other.
        transfer_s: Mean time per step in which it moved bytes, not hidden behind a backward pass,
            shared evenly among collectives that move at the same time. Unit: s.
    """

    name: str
    phase: str
    transfer_s: float


@dataclass(frozen=True)
class Communication:
    """What the ranks did together.

    Attributes:
        collectives: By operation, message and group, most bytes first; at most 20.
        clock_bound_s: Clock error between ranks; smaller differences are not significant. Unit: s.
            None: the ranks' clocks cannot be compared.
        clocks: How ranks were aligned: measured, collective ends, or none.
        late: Ranks that others waited for, most costly first; at most 8.
        network: The bandwidth compared with the expected one, in a sentence.
        network_share: Bus bandwidth of the largest collectives, divided by that of the link or the
            probe. Unit: 1. None: neither is known, or no transfer_s is.
        what_if: Replays of the bucket timeline.
        nccl: What the given NCCL_DEBUG output says, in sentences.
        unseen: Whose collectives are missing, and why; notes say what share of the step no stage
            explains.
        exposed: Rank number (as text) -> its exposed_transfer_s (ranks) by operation and phase,
            most first.
        hosts: How many hosts the ranks ran on. None: not known, as of traces.
    """

    collectives: list[CollectiveKind]
    clock_bound_s: float | None
    clocks: str
    late: list[LateRank]
    network: str
    network_share: float | None
    what_if: list[Prediction]
    nccl: list[str]
    unseen: list[str]
    exposed: dict[str, list[ExposedKind]] = field(default_factory=dict)
    hosts: int | None = None


def describe_delay(rank: LateRank) -> str:
    """Return ``its loader (decode) takes 12.7 ms longer``."""
    part = f" ({rank.part})" if rank.part else ""
    known = {
        "wait": "its loader",
        "other": "what it does outside all stages",
        BEFORE_TRACE: "what came before its trace",
    }
    what = known.get(rank.phase, f"its {rank.phase}")
    return f"{what}{part} takes {seconds(rank.excess_s)} longer"


def describe_late_rank(rank: LateRank) -> str:
    """Say that others wait for one rank."""
    costs = (
        ""
        if rank.cost_s is None
        else f"; without this delay, the replayed step is {seconds(max(rank.cost_s, 0.0))} shorter"
    )
    times = f"in {count(rank.steps)} of {count(rank.all_steps)} steps"
    return (
        f"Rank {rank.rank} is {seconds(rank.late_s)} late {times}: {describe_delay(rank)}{costs}."
    )


def describe_changing_ranks(comm: Communication) -> str:
    """Say that another rank is late in each step, or that too few steps tell."""
    most = max(comm.late, key=lambda late: late.steps)
    if most.steps == most.late_steps:
        steps = "one step" if most.steps == 1 else f"{most.steps} steps"
        return (
            f"Rank {most.rank} was {seconds(most.late_s)} late in {steps}: not enough to tell "
            f"whether it is always this rank."
        )
    return f"The slow rank changes: {describe_late_ranks(comm.late)}."


def describe_clock_error(how: str, bound_s: float) -> str:
    """Say how well ranks can be compared."""
    way = {
        "measured": "measured during the run",
        "collective ends": "estimated from the ends of collectives",
    }.get(how, how)
    return f"Clock error between ranks: {seconds(bound_s)} ({way})."
