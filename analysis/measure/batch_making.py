"""What making batches took in one rank, what it waited for, and the loaders that it iterated."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray, holds, overlap
from feedline.analysis.measure import stream_workers, waits
from feedline.analysis.measure.boundaries import evaluated_loaders, gave
from feedline.analysis.measure.clues import Parts, SameSamples
from feedline.analysis.measure.costs import operations
from feedline.analysis.measure.kept_windows import batches_stand_for, passes
from feedline.analysis.measure.model import Loader, Workers
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Flag, Stage
from feedline.profiler.samplers.blocked_threads import (
    ON_LOCK,
    ON_NETWORK,
    ON_PROCESS,
    ON_SHARED_LOCK,
    ON_SLEEP,
    ON_STOP,
    ON_UNKNOWN,
)
from feedline.profiler.store.layout import SAMPLE_HISTOGRAM, bin_edge_ns
from feedline.profiler.store.record_columns import Records, view
from feedline.profiler.store.segment_reader import Process

#: What a blocked thread does, by what it waits for.
DOING = {
    ON_SLEEP: "sleeping",
    ON_LOCK: "waiting for a lock or another thread",
    ON_SHARED_LOCK: "waiting for a lock or another process",
    ON_NETWORK: "waiting for the network",
    ON_PROCESS: "waiting for another process",
    ON_STOP: "stopped",
    ON_UNKNOWN: "blocked on something other than storage",
}
#: What a loader says of its batches, by the name it has in the report.
_BATCH_FLAGS = {
    "float32": Flag.FLOAT32,
    "shared": Flag.SHARED,
    "pinned": Flag.PINNED,
    "objects": Flag.OBJECTS,
}
_FEW_BATCHES = 3  # of a worker in an epoch: with fewer, it is busy from its first to its last


@dataclass(frozen=True)
class _Blocked:
    """Blocked makers of batches, as they were seen.

    Attributes:
        by: what they waited for -> share of the blocked time, largest first
            (profiler/samplers/blocked_threads.py has the words).
        looks: how many looks it is from.
    """

    by: dict[str, float]
    looks: int


def _blocked_of(main: Process, makers: list[Process], loaders: frozenset[int]) -> _Blocked:
    """Count the looks that found a maker of these loaders' batches blocked; each stands for a time.

    Those that found it stopped are left out: no change of the program would spare that.
    """
    looks = main.view(Stage.LOOK)
    stops = [source for source, name in main.names.items() if name == ON_STOP]
    looks = looks[~np.isin(looks["source"], stops)]
    inside = np.zeros(len(looks), bool)
    for process in makers:
        fetches = process.of(Stage.FETCH)
        making = _intervals(fetches[np.isin(fetches["source"], list(loaders))])
        inside |= np.isin(looks["pid"], pids_in_file(process)) & holds(making, looks["start"])
    seen = looks[inside]
    weights = np.bincount(seen["source"], seen["stands_for"].astype(float))
    by: dict[str, float] = {}
    for source in np.flatnonzero(weights).tolist():
        kind = main.names.get(source, "unknown")
        kind = ON_LOCK if kind == ON_SHARED_LOCK else kind
        by[kind] = by.get(kind, 0.0) + float(weights[source] / weights.sum())
    return _Blocked(dict(sorted(by.items(), key=lambda row: -row[1])), len(seen))


def pids_in_file(process: Process) -> list[int]:
    """Return the ids of all processes that wrote into its file: later epochs' workers, too."""
    own = process.header.get("pid")
    return [*process.view(Stage.START)["pid"].tolist(), *([own] if isinstance(own, int) else [])]


def _intervals(spans: Records) -> IntArray:
    """Return these spans, which one thread made one after another, as int64 [n, 2], ns."""
    begins, walls = (
        spans[key][np.argsort(spans["start"], kind="stable")] for key in ("start", "wall")
    )
    return np.column_stack([begins, begins + walls])


def workers(rank: RankMetrics) -> Workers | None:
    """Return what making batches costs, None when no loader was seen."""
    if not rank.samples:
        return None
    walls = _batch_walls(rank) / 1e9
    processes = [process for process in rank.makers.processes if process.is_worker]
    busy, idle = _busy_shares(processes, rank.counted_since)
    details = rank.details
    seen = details.decoded > 0
    blocked = _blocked_of(rank.main, rank.makers.processes, rank.makers.loaders)
    return Workers(
        processes=len({_who(process) for process in processes}),
        busy_share=busy,
        idle_share=idle,
        batches=rank.makers.batches + rank.in_rests[0],
        samples=rank.samples + rank.in_rests[1],
        samples_in_detail=int(details.samples.sum()),
        per_sample=rank.sample_costs,
        operations=operations(details, rank.sample_costs),
        fetch_mean_s=float(walls.mean()) if len(walls) else None,
        fetch_cv=float(walls.std() / walls.mean()) if len(walls) > 1 and walls.mean() else None,
        decoded_pixels=details.weighted_mean(details.decoded) if seen.any() else None,
        output_pixels=details.weighted_mean(details.output) if details.output.any() else None,
        sample_wall_histogram=_histogram(rank.makers.processes),
        blocked_by=blocked.by,
        blocked_looks=blocked.looks,
        process_cpu_s=process_cpu_s(rank),
        batch_tensors=_batch_tensors(rank),
        without_batches=_without_batches(processes),
    )


def queued_share(rank: RankMetrics) -> float:
    """Return the share (0 to 1) of making batches in which those who make them wait for a CPU."""
    batches = [process.batches for process in rank.makers.processes]
    wall = sum(int(one["wall"].sum()) for one in batches)
    queued = sum(int(np.maximum(one["runqueue"], 0).sum()) for one in batches)
    return queued / wall if wall > 0 else 0.0


def _batch_walls(rank: RankMetrics) -> IntArray:
    """Return how long the making of each batch took, int64 [n], ns.

    Those from before the first step that counts are left out where there are others.
    """
    fetches = np.concatenate([process.batches for process in rank.makers.processes])
    fetches = fetches[np.isin(fetches["source"], list(rank.makers.loaders))]
    counts = fetches["start"] >= rank.counted_since
    return np.asarray(fetches["wall"][counts] if counts.sum() > 1 else fetches["wall"])


def _who(process: Process) -> tuple[object, object]:
    """Return the worker of a loader, which may be several processes one after the other."""
    return process.header["loader"], process.header["worker"]


def _without_batches(processes: list[Process]) -> int:
    """Return the workers that made no batch.

    Their part of the data was empty, or they were never asked for one. A worker that was still at
    its first one is none of them.
    """
    producing, under_way = set(), set()
    for process in processes:
        fetches = process.of(Stage.FETCH)
        if process.stride > 1 or (fetches["flags"] & Flag.END == 0).any():
            producing.add(_who(process))
        elif not len(fetches) and len(process.of(Stage.IDLE)):
            under_way.add(_who(process))
    return len({_who(process) for process in processes} - producing - under_way)


def _busy_shares(processes: list[Process], since: int) -> tuple[float | None, float | None]:
    """Return the shares of time in which the workers made batches and had nothing to do.

    That is between their first and last batch of each epoch. One whose part of the data ends early
    has nothing to do until the last batch of the others. A worker that makes one or two in an epoch
    is left out: between them, it has hardly anything else to do.

    Args:
        since: ns, from which on batches count, where any worker makes more than two of them.
    """
    late = _shares_since(processes, since)
    return late if late[0] is not None else _shares_since(processes, 0)


def _shares_since(processes: list[Process], since: int) -> tuple[float | None, float | None]:
    busy = idle = alive = 0.0
    ends = _last_batches(processes)
    for process in processes:
        fetches, idles = process.of(Stage.FETCH), process.of(Stage.IDLE)
        fetches = fetches[fetches["start"] >= since]
        for epoch in np.unique(fetches["number"] >> 32).tolist():
            batches = fetches[fetches["number"] >> 32 == epoch]
            if len(batches) < _FEW_BATCHES:
                continue
            begin = int(batches["start"].min())
            end = int((batches["start"] + batches["wall"]).max())
            if (batches["flags"] & Flag.END != 0).any():
                last = max(end, ends[batches["source"][0].item(), epoch])
                idle += last - end
                alive += last - end
            alive += end - begin
            waited = idles[(idles["start"] >= begin) & (idles["start"] < end)]
            made, rested = int(batches["wall"].sum()), int(waited["wall"].sum())
            # of forgotten windows, the time is divided as that of those kept
            each = (end - begin) / max(made + rested, 1) if process.stride > 1 else 1
            busy += made * each
            idle += rested * each
    return (busy / alive, idle / alive) if alive else (None, None)


def _last_batches(processes: list[Process]) -> dict[tuple[int, int], int]:
    """Return when the last batch of each loader and epoch was made, ns."""
    last: dict[tuple[int, int], int] = {}
    for process in processes:
        fetches = process.of(Stage.FETCH)
        fetches = fetches[fetches["flags"] & Flag.END == 0]
        for loader, epoch, at in zip(
            fetches["source"].tolist(),
            (fetches["number"] >> 32).tolist(),
            (fetches["start"] + fetches["wall"]).tolist(),
        ):
            last[loader, epoch] = max(last.get((loader, epoch), 0), at)
    return last


def _histogram(processes: list[Process]) -> list[tuple[float, int]]:
    """Return (upper edge in s, samples) of the bins in use and those between them."""
    counts = np.sum([process.histograms[SAMPLE_HISTOGRAM] for process in processes], axis=0)
    used = np.flatnonzero(counts)
    return (
        [
            (bin_edge_ns(index + 1) / 1e9, int(counts[index]))
            for index in range(used[0], used[-1] + 1)
        ]
        if len(used)
        else []
    )


def loaders(rank: RankMetrics) -> list[Loader]:
    """Return every loader that was iterated."""
    training = rank.makers.loaders
    if rank.steps is None:
        training -= evaluated_loaders(rank.main)
    unused = rank.steps.boundaries.unused if rank.steps else frozenset[int]()
    by = rank.steps.boundaries.by if rank.steps else "loader"
    stand_for = batches_stand_for(rank.main, training, by)
    begun, all_kept = passes(rank.main, stand_for), rank.main.stride == 1
    summaries = []
    for number, about in enumerate(rank.rank.manifest.loaders):
        settings = {name: value for name, value in about.items() if name != "kind"}
        asked = rank.main.view(Stage.NEXT)
        batches, samples = rank.counted.taken.get(number, (0, 0))
        each = stand_for.get(number, 1.0)
        asked = asked[(asked["source"] == number) & gave(asked)]
        own = [process for process in rank.workers if process.header["loader"] == number]
        pickles = [process.view(Stage.PICKLE)["nbytes"] for process in own]
        flags = int(np.bitwise_or.reduce(asked["flags"])) if len(asked) else 0
        shared_flags = [process.of(Stage.BATCH)["flags"] & Flag.SHARED for process in own]
        # once it left the queue, every tensor is shared, and none that was pinned then
        if not all(shared.all() for shared in shared_flags):
            flags &= ~Flag.SHARED
        elif flags & Flag.PINNED and any(len(shared) for shared in shared_flags):
            flags |= Flag.SHARED
        names = [name for name, flag in _BATCH_FLAGS.items() if flags & flag]
        summaries.append(
            Loader(
                name=f"loader {number}",
                kind=str(about["kind"]),
                settings=settings,
                role="training"
                if number in training
                else "unused"
                if number in unused
                else "evaluation",
                batches=round(len(asked) * each) + batches,
                samples=round(int(asked["samples"].sum()) * each) + samples,
                batch_bytes=float(asked["nbytes"].mean()) if len(asked) else None,
                flags=names,
                pickle_bytes=_mean(np.concatenate(pickles).tolist()) if pickles else None,
                first_batch_s=_mean(starts := _first_batches(rank.main, number)),
                epochs=len(starts) if all_kept else begun.get(number, 0),
                objects=_objects(rank.main, number, begun.get(number, 0)),
            )
        )
    return summaries


def _objects(main: Process, loader: int, begun: int) -> int:
    """Return how many DataLoaders were taken for this one, 1 or more.

    Each has a first pass. Of passes that were forgotten, as many are such as of the later ones that
    were kept.

    Args:
        begun: passes over it.
    """
    epochs = main.of(Stage.EPOCH)
    epochs = epochs[epochs["source"] == loader]
    first = int((epochs["flags"] & Flag.FIRST != 0).sum())
    if main.stride == 1 or len(epochs) < 2:
        return max(1, first)
    return 1 + round(max(first - 1, 0) * (begun - 1) / (len(epochs) - 1))


def _first_batches(main: Process, loader: int) -> list[float]:
    """Return the seconds from asking for an iterator to its first batch, epoch by epoch."""
    records = main.records[main.records["source"] == loader]
    begun = {
        int(epoch["epoch"]): int(epoch["start"])
        for epoch in view(records[records["stage"] == Stage.EPOCH], Stage.EPOCH)
    }
    first = records[(records["stage"] == Stage.NEXT) & (records["flags"] & Flag.FIRST != 0)]
    ends = zip((first["number"] >> 32).tolist(), (first["start"] + first["wall"]).tolist())
    return [(end - begun[epoch]) / 1e9 for epoch, end in ends if epoch in begun]


def order_s(rank: RankMetrics, begun: int) -> float | None:
    """Return the mean time in which a pass draws its first indices, s.

    A sampler that makes the order of a pass makes it then.
    """
    drawn, epochs = rank.main.of(Stage.SAMPLER), rank.main.of(Stage.EPOCH)
    own = np.isin(epochs["source"], list(rank.makers.loaders))
    own &= epochs["window"] & (rank.main.stride - 1) == 0
    starts = np.sort(epochs["start"][own])
    drawn = drawn[np.isin(drawn["source"], list(rank.makers.loaders))]
    if not begun or not len(starts) or not len(drawn):
        return None
    first = np.unique(np.searchsorted(drawn["start"], starts))
    each = begun if rank.main.stride == 1 else len(starts)
    return float(drawn["wall"][first[first < len(drawn)]].sum()) / 1e9 / each


def first_made_s(rank: RankMetrics) -> float | None:
    """Return the mean time in which a worker makes the first batch of a later pass, s.

    None: there was none.
    """
    made = [process.of(Stage.FETCH) for process in rank.makers.processes if process.is_worker]
    firsts = [
        rows["wall"][(rows["number"] & 0xFFFFFFFF == 0) & (rows["number"] >> 32 > 0)]
        for rows in made
    ]
    walls = np.concatenate([np.zeros(0, np.int64), *firsts])
    return float(walls.mean()) / 1e9 if len(walls) else None


def same_samples(rank: RankMetrics) -> SameSamples | None:
    """Return whether the workers of a stream deliver the same samples; None: not seen."""
    settings = rank.rank.manifest.loaders
    for loader in sorted(rank.makers.loaders):
        workers = [
            process for process in rank.makers.processes if process.header.get("loader") == loader
        ]
        about = settings[loader] if loader < len(settings) else {}
        if about.get("resampled"):  # workers may well read one file at a time
            continue
        asks = about.get("asks_for_worker")
        if (same := stream_workers.same_samples(workers, asks)) is not None:
            return same
    return None


def worker_parts(rank: RankMetrics) -> Parts | None:
    """Return the samples of the workers of the one loader that feeds the steps; None: unknown."""
    loaders = rank.makers.loaders
    return _worker_parts(rank.makers.processes) if len(loaders) == 1 else None


def straggler_share(rank: RankMetrics) -> float | None:
    """Return the share of time that workers idle while another's batch is awaited in order."""
    steps = rank.steps
    of_workers = [process for process in rank.makers.processes if process.is_worker]
    if (
        steps is None
        or not of_workers
        or not any(about.get("in_order", True) for about in rank.rank.manifest.loaders)
    ):
        return None
    begin, end = _head_of_line(steps, rank.ready)
    idle = np.concatenate([process.of(Stage.IDLE) for process in of_workers])
    count = len({(process.header["loader"], process.header["worker"]) for process in of_workers})
    total = count * int(steps.boundaries.end[-1] - steps.boundaries.start[rank.first])
    return (
        float(overlap(idle["start"], idle["start"] + idle["wall"], begin, end).sum()) / total
        if total
        else None
    )


def _head_of_line(steps: Steps, ready: dict[tuple[int, int], int]) -> tuple[IntArray, IntArray]:
    later = np.array(waits.later_ready(steps.asked, ready), np.int64)
    ready_at = np.array(
        [
            ready.get(key, 0)
            for key in zip(steps.asked["source"].tolist(), steps.asked["number"].tolist())
        ],
        np.int64,
    )
    of = steps.waiting_for
    begin = np.maximum(steps.waiting.start, later[of]) if len(of) else np.zeros(0, np.int64)
    end = np.minimum(steps.waiting.end, ready_at[of]) if len(of) else begin
    wanted = (end > begin) & (steps.asked["flags"][of] & Flag.FIRST == 0)
    return begin[wanted], end[wanted]


def _batch_tensors(rank: RankMetrics) -> float | None:
    """Return the tensors per batch, of those that were looked into."""
    sums = rank.makers.sums(Stage.BATCH)
    return sums["tensors"] / sums["batches"] if sums["batches"] else None


def process_cpu_s(rank: RankMetrics) -> float | None:
    """Return the CPU seconds per sample of whole processes, helper threads included."""
    traffic = rank.counted_makers.traffic()
    return traffic.process_cpu / 1e9 if traffic is not None and rank.samples else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _worker_parts(processes: Iterable[Process]) -> Parts | None:
    """Count the samples of each worker of a loader; None: no pass was ended by all."""
    workers: dict[object, dict[int, int]] = {}  # worker -> pass that it ended -> samples
    for process in processes:
        if not process.is_worker:
            continue
        if process.stride > 1:  # some batches were not kept
            return None
        rows = process.view(Stage.FETCH)
        ended = workers.setdefault(process.header["worker"], {})
        of_pass, at_end = rows["number"] >> 32, rows["flags"] & Flag.END != 0
        for number in np.unique(of_pass[at_end]).tolist():
            made = (of_pass == number) & (rows["flags"] & (Flag.END | Flag.FAILED) == 0)
            ended[number] = int(rows["samples"][made].sum())
    passes = set.intersection(*map(set, workers.values())) if workers else set()
    counts = [sum(ended[number] for number in passes) for ended in workers.values()]
    most = max(counts, default=0)
    return Parts(most, min(counts), sum(counts) / most) if most else None
