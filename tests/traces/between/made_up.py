"""Made-up traces of ranks that train together, with exact truth: what each does before it comes to
a collective, and when bytes move.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.traces.rank_trace import RankTrace, summarise
from feedline.analysis.traces.trace_columns import EVENT_DTYPE, CollectiveArgs, Kind, Trace, Track

MS = 1_000_000
UNIX = 1_700_000_000_000_000_000
MAIN, COMPUTE, MOVES = 0, 1, 2  # tracks


@dataclass
class Writer:
    """Events of one rank."""

    rows: list[tuple[int, int, int, str, int, Kind, int]] = field(default_factory=list)
    launches: int = 0

    def host(self, start: int, end: int, name: str, kind: Kind, correlation: int = -1) -> None:
        self.rows.append((start, end, correlation, name, MAIN, kind, -1))

    def device(
        self,
        launched: int,
        start: int,
        end: int,
        name: str,
        track: int,
        kind: Kind = Kind.KERNEL,
        args: int = -1,
    ) -> None:
        """Work of the device with the call that launched it."""
        self.launches += 1
        self.host(launched, launched + 1_000, "cudaLaunchKernel", Kind.RUNTIME, self.launches)
        self.rows.append((start, end, self.launches, name, track, kind, args))


@dataclass(frozen=True)
class Training:
    """Times in ms. A step: input, launching, a copy, a kernel, then one collective after the other;
    each takes ``transfer``.

    Attributes:
        late: (step, rank) -> (what, ms more). What: "input", "launching", "copy", "computing",
            "synchronising".
        clocks: rank -> ns that its clock is ahead. seen: ranks that left a trace; None: all.
        collective: kernel's name. said: a range around its launch. args: per rank; None: the trace
            says nothing of it.
        skipped: (rank, step) that the trace lacks collectives of.
        between: ms between two collectives.
    """

    ranks: int = 4
    steps: int = 6
    collectives: int = 2
    transfer: float = 1.0
    late: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    seen: tuple[int, ...] | None = None
    collective: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    said: str = ""
    args: Sequence[CollectiveArgs] | None = None
    numbered: bool = False
    skipped: frozenset[tuple[int, int]] = frozenset()
    world_size: int | None = 4
    between: float = 2.0


def trained(plan: Training) -> dict[int, RankTrace]:
    """What summarise says of each rank's trace."""
    return {rank: summarise(trace) for rank, trace in traces(plan).items()}


def traces(plan: Training) -> dict[int, Trace]:
    writers = [Writer() for _ in range(plan.ranks)]
    now = [10 * MS] * plan.ranks
    number = 0
    for step in range(plan.steps):
        begun = list(now)
        now = [_work(plan, writers[rank], step, rank, now[rank]) for rank in range(plan.ranks)]
        for _ in range(plan.collectives):
            end = max(now) + round(plan.transfer * MS)
            for rank, writer in enumerate(writers):
                if (rank, step) not in plan.skipped:
                    _collective(plan, writer, rank, now[rank], end, number)
            now = [end + round(plan.between * MS)] * plan.ranks
            number += 1
        for writer, start, end in zip(writers, begun, now):
            writer.host(start, end, f"ProfilerStep#{step}", Kind.ANNOTATION)
    seen = range(plan.ranks) if plan.seen is None else plan.seen
    return {rank: _trace(plan, rank, writers[rank]) for rank in seen}


def _work(plan: Training, writer: Writer, step: int, rank: int, at: int) -> int:
    """What a rank does before its first collective; returns when it begins that."""
    found, more = plan.late.get((step, rank), ("", 0.0))
    took = {
        what: round(ms * MS)
        for what, ms in {
            "input": 1.0,
            "launching": 1.0,
            "copy": 0.5,
            "computing": 2.0,
            "synchronising": 0.0,
        }.items()
    }
    took[found] = took.get(found, 0) + round(more * MS)
    writer.host(
        at,
        at + took["input"],
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        Kind.ANNOTATION,
    )
    at += took["input"]
    writer.host(at, at + took["launching"], "aten::linear", Kind.OPERATOR)
    at += took["launching"]
    if took["synchronising"]:
        writer.host(at, at + took["synchronising"], "cudaStreamSynchronize", Kind.RUNTIME)
        at += took["synchronising"]
    writer.device(
        at - 2_000, at, at + took["copy"], "Memcpy HtoD (Pinned -> Device)", COMPUTE, Kind.COPY
    )
    at += took["copy"]
    writer.device(at - 2_000, at, at + took["computing"], "gemm", COMPUTE)
    return at + took["computing"]


def _collective(
    plan: Training, writer: Writer, rank: int, start: int, end: int, number: int
) -> None:
    args = -1 if plan.args is None else number if plan.numbered else 0
    if plan.said:
        writer.host(start - 5_000, start - 1_000, plan.said, Kind.ANNOTATION)
    writer.device(start - 3_000, start, end, plan.collective, MOVES, args=args)


def _trace(plan: Training, rank: int, writer: Writer) -> Trace:
    names: dict[str, int] = {}
    events = np.zeros(len(writer.rows), EVENT_DTYPE)
    events["nbytes"] = events["shape"] = -1
    for place, (start, end, correlation, name, track, kind, args) in enumerate(writer.rows):
        row = events[place]
        row["start"], row["wall"], row["correlation"] = start, end - start, correlation
        row["name"], row["track"], row["kind"], row["collective"] = (
            names.setdefault(name, len(names)),
            track,
            kind,
            args,
        )
    events = events[np.lexsort((events["name"], events["track"], -events["wall"], events["start"]))]
    mine = plan.args[rank] if plan.args is not None else None
    known = [] if mine is None else [mine]
    if mine is not None and plan.numbered:
        known = [
            CollectiveArgs(**{**vars(mine), "sequence": number})
            for number in range(plan.steps * plan.collectives)
        ]
    tracks = [Track("1", "1"), Track("0", "7", 0), Track("0", "20", 0)]
    return Trace(
        f"rank{rank}.json",
        "kineto",
        rank,
        plan.world_size,
        UNIX + plan.clocks.get(rank, 0),
        events,
        list(names),
        tracks,
        collectives=known,
    )
