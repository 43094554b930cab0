"""What the ranks did together, as a report has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from feedline.analysis.formatting import count

QuestionId = Literal["as_it_was", "no_late_rank", "rank_on_time", "faster_link", "half_gradients", "bucket_size", "accumulation", "no_sync"]
SHARES = 3  # ranks that are named where another one is late in each step
#: Phase of a rank that was late already when its trace began.
BEFORE_TRACE = "before_trace"


@dataclass(frozen=True)
class CollectiveKind:
    """Collectives of one operation and size. Bandwidths in GB/s = 1e9 bytes/s, as nccl-tests count them (doc/PERFORMANCE.md)."""

    name: str  # all_reduce, reduce_scatter, all_gather, ...
    bytes: int  # the full message
    n: int  # ranks of the group
    backend: str
    count: int
    transfer_s: float | None  # median, without waiting
    algbw_gbps: float | None
    busbw_gbps: float | None


@dataclass(frozen=True)
class LateRank:
    """A rank that others waited for."""

    rank: int
    steps: int  # in which it was the late one
    late_steps: int  # in which any rank was
    all_steps: int
    late_s: float  # against the median of the others, mean over its late steps
    waited_s: float  # by each other rank, mean over its late steps
    phase: str  # what took it longer
    excess_s: float  # by how much, mean over its late steps
    part: str | None  # of a sample, where the phase is "wait"
    cost_s: float | None  # what the mean step would be shorter by without its lateness (replay)
    persistent: bool
    whole_host: bool  # all ranks of its host are late, and no other


def describe_late_ranks(lates: Sequence[LateRank]) -> str:
    """Say who was late: ``rank 0 in 56, rank 1 in 40 of the 96 steps with a late rank``."""
    most = sorted(lates, key=lambda late: -late.steps)[:SHARES]
    shares = ", ".join(f"rank {late.rank} in {count(late.steps)}" for late in most)
    return f"{shares} of the {count(most[0].late_steps)} steps with a late rank"


@dataclass(frozen=True)
class Prediction:
    """What the mean step would be if something about the communication were different."""

    id: QuestionId
    value: float | None  # the rank, times as fast, MiB, or batches, as the id says
    what: str
    step_s: float | None  # None: refused
    low: float | None
    high: float | None
    gain_s: float
    why: str  # why it was refused


@dataclass(frozen=True)
class RankParts:
    """What a rank's mean step goes to, in seconds; the parts sum to it. None: it met no other rank, so its transfer holds the waiting."""

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
    """Collectives of one operation, called in one phase of the step: what of their transfer no backward covers."""

    name: str
    phase: str
    transfer_s: float


@dataclass(frozen=True)
class Communication:
    """What the ranks did together."""

    collectives: list[CollectiveKind]  # most bytes first
    clock_bound_s: float | None  # error of the clocks between ranks; None: they cannot be compared
    clocks: str  # how ranks were aligned: "measured", "collective ends" or "none"
    late: list[LateRank]  # most costly first
    network: str  # the bandwidth against what it should be, in a sentence
    network_share: float | None  # of the ceiling
    what_if: list[Prediction]  # the first is the run itself, replayed
    nccl: list[str]  # what NCCL_DEBUG output says, in sentences
    unseen: list[str]  # backends whose collectives are missing, and why
    exposed: dict[str, list[ExposedKind]] = field(default_factory=dict)  # rank -> its exposed_transfer_s by what moved, most first
