"""Made-up data parallel training with exact truth: ranks that enqueue buckets in backward, one
bucket after the other on the link.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.collectives import (
    COLLECTIVE_DTYPE,
    PHASES,
    Collectives,
    ProcessGroup,
    RankClock,
)

MS = 1_000_000
MB = 1_000_000
BOOT = 86_400 * 1_000 * MS  # clocks do not begin at zero
NO_CLOCK = RankClock(np.zeros(0, np.int64), np.zeros(0, np.int64), float("inf"))


@dataclass(frozen=True)
class Training:
    """All times in ms. A step: input, forward, backward with its buckets, waiting for the last of
    them, optimizer, and what no stage tells.

    Attributes:
        buckets: bytes, in the order in which backward fills them.
        link: bytes/s that a rank can send.
        late: (step, rank) -> (phase, ms more than usual).
        stalls: (step, bucket) -> ms that the link carries nothing of it.
        offset: rank -> ms that its clock is ahead. drift: rank -> parts per million that it goes
            too fast.
        jitter: ms: how unevenly ranks compute.
        evaluation: step -> ms of evaluation after it.
        unclear: ms by which ranks hear of an end later than it was, at most.
    """

    ranks: int = 4
    steps: int = 30
    wait: float = 2.0
    forward: float = 10.0
    backward: float = 30.0
    optimizer: float = 3.0
    between: float = 0.0
    buckets: tuple[int, ...] = (1 * MB, 4 * MB, 4 * MB)
    link: float = 1e9
    late: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    stalls: dict[tuple[int, int], float] = field(default_factory=dict)
    offset: dict[int, float] = field(default_factory=dict)
    drift: dict[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    evaluation: dict[int, float] = field(default_factory=dict)
    unclear: float = 0.0
    measured: bool = True
    seed: int = 0
    backend: str = "nccl"
    hosts: tuple[str, ...] = ("a",)


@dataclass(frozen=True)
class Made:
    """What came of it.

    Attributes:
        transfer_ms: per bucket.
        lateness: int64 [steps, ranks], ns: how much later than the first rank each began the first
            bucket.
        periods: int64 [steps], ns: from one end of the last bucket to the next.
    """

    ranks: list[Collectives]
    transfer_ms: list[float]
    lateness: IntArray
    periods: IntArray


def train(plan: Training) -> Made:
    random = np.random.default_rng(plan.seed)
    took = [2 * (plan.ranks - 1) / plan.ranks * size / plan.link * 1e3 for size in plan.buckets]
    now = np.full(plan.ranks, float(BOOT))
    rows: list[list[tuple[int, int, int, int]]] = [[] for _ in range(plan.ranks)]
    edges, stages = [[] for _ in range(plan.ranks)], [{} for _ in range(plan.ranks)]  # type: ignore[var-annotated]
    evaluations: list[list[tuple[float, float]]] = [[] for _ in range(plan.ranks)]
    lateness, releases = [], []
    for step in range(plan.steps):
        enqueued = np.zeros((len(plan.buckets), plan.ranks))
        begun = np.zeros(plan.ranks)
        for rank in range(plan.ranks):
            edges[rank].append(now[rank])
            for phase in ("wait", "forward", "backward"):
                length = (
                    getattr(plan, phase) * MS
                    + more(plan, step, rank, phase)
                    + plan.jitter * MS * random.random()
                )
                if phase == "backward":
                    begun[rank] = now[rank]
                    enqueued[:, rank] = now[rank] + length * (
                        np.arange(len(plan.buckets)) + 1
                    ) / len(plan.buckets)
                else:
                    stages[rank].setdefault(phase, []).append((now[rank], now[rank] + length))
                now[rank] += length
        done = _carried(
            enqueued.max(1),
            [ms + plan.stalls.get((step, bucket), 0.0) for bucket, ms in enumerate(took)],
        )
        for rank in range(plan.ranks):
            heard = done + plan.unclear * MS * random.random(len(done))
            for bucket, size in enumerate(plan.buckets):
                rows[rank].append(
                    (
                        round(enqueued[bucket, rank]),
                        round(heard[bucket]),
                        size,
                        step * len(plan.buckets) + bucket,
                    )
                )
            now[rank] = max(now[rank], heard.max())
            stages[rank].setdefault("backward", []).append((begun[rank], now[rank]))
            length = plan.optimizer * MS + more(plan, step, rank, "optimizer")
            stages[rank].setdefault("optimizer", []).append((now[rank], now[rank] + length))
            now[rank] += length + plan.between * MS
            if step in plan.evaluation:
                evaluations[rank].append((now[rank], now[rank] + plan.evaluation[step] * MS))
                now[rank] = evaluations[rank][-1][1]
        lateness.append(np.rint(enqueued[0] - enqueued[0].min()))
        releases.append(done[-1])
    ranks = [
        _collectives(
            plan, rank, rows[rank], [*edges[rank], now[rank]], stages[rank], evaluations[rank]
        )
        for rank in range(plan.ranks)
    ]
    return Made(
        ranks,
        took,
        np.array(lateness, np.int64),
        np.diff(np.rint(releases).astype(np.int64), prepend=BOOT),
    )


def more(plan: Training, step: int, rank: int, phase: str) -> float:
    found, ms = plan.late.get((step, rank), ("", 0.0))
    return ms * MS if found == phase else 0.0


def _carried(ready: np.ndarray, took: list[float]) -> np.ndarray:
    ends, last = [], 0.0
    for at, ms in zip(ready, took, strict=True):
        last = max(at, last) + ms * MS
        ends.append(last)
    return np.array(ends)


def own_time(plan: Training, rank: int, times: np.ndarray) -> IntArray:
    """The true time as a rank's clock shows it."""
    times = np.asarray(times, float)
    shown = plan.offset.get(rank, 0.0) * MS + (times - BOOT) * plan.drift.get(rank, 0.0) * 1e-6
    return (np.rint(times).astype(np.int64) + np.rint(shown).astype(np.int64)).astype(np.int64)


def _collectives(
    plan: Training, rank: int, rows: list, edges: list, stages: dict, evaluation: list
) -> Collectives:  # type: ignore[type-arg]
    table = np.zeros(len(rows), COLLECTIVE_DTYPE)
    if rows:
        start, end, nbytes, sequence = (np.array(column) for column in zip(*rows, strict=True))
        table["start"], table["end"] = own_time(plan, rank, start), own_time(plan, rank, end)
        table["nbytes"], table["sequence"], table["phase"] = (
            nbytes,
            sequence,
            PHASES.index("backward"),
        )
        table["bucket"] = True
    group = ProcessGroup("0", tuple(range(plan.ranks)), plan.backend)
    spans = {
        name: own_time(plan, rank, np.array(spans)).reshape(-1, 2) for name, spans in stages.items()
    }
    return Collectives(rank, plan.hosts[rank * len(plan.hosts) // plan.ranks], table, [group], ["allreduce_"], ["float32"],
                       own_time(plan, rank, np.stack([edges[:-1], edges[1:]], 1)), spans, _clock(plan, rank, edges),
                       evaluation=own_time(plan, rank, np.reshape(evaluation, (-1, 2))))  # fmt: skip


def _clock(plan: Training, rank: int, edges: list[float]) -> RankClock:
    if not plan.measured:
        return NO_CLOCK
    at = np.rint(np.linspace(edges[0], edges[-1], 5)).astype(np.int64)
    own = own_time(plan, rank, at)
    reference = own_time(plan, 0, at)
    return RankClock(own, reference - own, 20_000.0 if rank else 0.0)


def with_table(one: Collectives, table: np.ndarray) -> Collectives:
    return replace(one, table=table)


def always(
    rank: int, steps: range, phase: str, ms: float
) -> dict[tuple[int, int], tuple[str, float]]:
    return {(step, rank): (phase, ms) for step in steps}


def messages(
    sent: list[float], received: list[float], ended: list[float], nbytes: int, steps: int = 1
) -> list[Collectives]:
    """Rank 0 sends, rank 1 receives, on one clock: ms at which each side begins, and at which both
    have ended.

    Args:
        ended: ms; where a receiver begins later, the sender has ended then and the receiver 1 ms
            after it began.
    """
    ranks = []
    for rank, begun in enumerate((sent, received)):
        table = np.zeros(len(begun), COLLECTIVE_DTYPE)
        table["start"] = BOOT + np.array(begun) * MS
        table["end"] = np.maximum(BOOT + np.array(ended) * MS, table["start"] + MS)
        table["nbytes"], table["sequence"] = nbytes, np.arange(len(begun))
        edges = BOOT + np.linspace(0, max(ended) + 50, steps + 1).astype(np.int64) * MS
        clock = RankClock(edges[:1], np.zeros(1, np.int64), 1000.0)
        name = "recv" if rank else "send"
        ranks.append(Collectives(rank, "a", table, [ProcessGroup("0 0>1", (0, 1), "gloo")], [name], ["float32"],
                                 np.stack([edges[:-1], edges[1:]], 1), {}, clock))  # fmt: skip
    return ranks
