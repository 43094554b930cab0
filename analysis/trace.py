"""A run as a Chrome trace for Perfetto: pid = rank, one track per thread of the training and per worker, microseconds.

Perfetto drops events of one track that overlap without nesting, so what does not nest goes to an overflow track beside it.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedline.analysis.boundaries import find
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.read import Process, Rank, Run

NO_SPANS = (Stage.TRAFFIC, Stage.BATCH, Stage.PROFILED)
TRACKS = 100  # track numbers set aside for each process
GPU_THREAD = 48  # the GPU as one more thread
WORKER, STEP_TRACK = 10, 1


def is_trace(path: Path) -> bool:
    """Whether a file's name asks for a trace."""
    return path.name.endswith((".trace.json", ".trace.json.gz", "trace.json.gz"))


def write(run: Run, path: Path) -> None:
    """Write all ranks of a run.

    Raises:
        OSError: the place cannot be written to.
    """
    temporary = path.with_name(f".{path.name}")
    opened = gzip.open(temporary, "wt", compresslevel=5) if path.suffix == ".gz" else open(temporary, "w")
    with opened as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(events(run)):
            file.write(("" if number == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")
    temporary.replace(path)


def events(run: Run) -> Iterator[dict[str, Any]]:
    """All events of a run; times in microseconds since the first rank's start."""
    origin = min((rank.manifest.anchors[0]["perf_counter_ns"] for rank in run.ranks.values() if rank.manifest.anchors), default=0)
    for number, rank in sorted(run.ranks.items()):
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"rank {number}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
        yield from _rank(rank, number, origin)


def _rank(rank: Rank, pid: int, origin: int) -> Iterator[dict[str, Any]]:
    for process in rank.processes:
        if process.is_worker:
            loader, worker = int(str(process.header["loader"])), int(str(process.header["worker"]))
            first, label = TRACKS * (WORKER + 64 * loader + worker), f"loader {loader} worker {worker}"
        else:
            first, label = TRACKS, "training"
            yield from _steps(process, pid, origin)
        yield from _process(process, pid, first, label, origin)


def _steps(main: Process, pid: int, origin: int) -> Iterator[dict[str, Any]]:
    records = main.records[(main.records["thread"] == 0) & ~_is(main, (Stage.GPU, Stage.PROFILED))]
    records.sort(order="start")
    found = find(records) if len(records) else None
    if found is None:
        return
    yield from _name_track(pid, STEP_TRACK, "steps")
    for number, (start, end) in enumerate(zip(found.start.tolist(), found.end.tolist())):
        yield _event(f"step {number}", pid, STEP_TRACK, start - origin, end - start, {})


def _process(process: Process, pid: int, first: int, label: str, origin: int) -> Iterator[dict[str, Any]]:
    spans = process.records[~_is(process, NO_SPANS) & (process.records["stage"] != Stage.START)]
    spans["thread"][spans["stage"] == Stage.GPU] = GPU_THREAD
    for thread in sorted(set(spans["thread"].tolist())):
        own = spans[spans["thread"] == thread]
        own = own[(own["start"] * 1.0 - own["wall"] * 1e-12).argsort(kind="stable")]
        name = label if thread == 0 else f"{label}, GPU" if thread == GPU_THREAD else f"{label}, thread {thread}"
        track, used = first + 2 * int(thread), {0}
        yield from _name_track(pid, track, name)
        open_until: list[int] = []
        for record in own:
            start, wall = int(record["start"]), int(record["wall"])
            while open_until and open_until[-1] <= start:
                open_until.pop()
            fits = not open_until or start + wall <= open_until[-1]
            if fits:
                open_until.append(start + wall)
            elif 1 not in used:
                used.add(1)
                yield from _name_track(pid, track + 1, f"{name} (overlapping)")
            yield _record(record, process, pid, track + (not fits), origin)


def _is(process: Process, stages: tuple[Stage, ...]) -> Any:
    import numpy as np

    return np.isin(process.records["stage"], stages)


def _record(record: Any, process: Process, pid: int, tid: int, origin: int) -> dict[str, Any]:
    stage = Stage(int(record["stage"]))
    name = stage.name.lower()
    args: dict[str, Any] = {}
    named = stage in (Stage.READ, Stage.DECODE, Stage.AUGMENT, Stage.FORWARD, Stage.LOSS, Stage.OPTIMIZER, Stage.USER)
    if named and int(record["source"]) in process.names:
        operation = process.names[int(record["source"])]
        name = operation if stage is Stage.USER else f"{name}: {operation}"
    elif stage is Stage.GPU:
        name = Stage(int(record["extra"])).name.lower()
    elif stage in (Stage.FETCH, Stage.COLLATE, Stage.NEXT, Stage.SAMPLE, Stage.IDLE, Stage.PICKLE, Stage.ARRIVE):
        args = {"epoch": int(record["number"]) >> 32, "batch": int(record["number"]) & 0xFFFFFFFF, "loader": int(record["source"])}
    if record["nbytes"] > 0:
        args["bytes"] = int(record["nbytes"])
    if record["cpu"] >= 0 and record["wall"] > 0:
        args["cpu_us"] = int(record["cpu"]) / 1000
    if record["flags"] & Flag.FAILED:
        args["raised"] = True
    return _event(name, pid, tid, int(record["start"]) - origin, int(record["wall"]), args)


def _event(name: str, pid: int, tid: int, start: int, wall: int, args: dict[str, Any]) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start / 1000, "dur": wall / 1000}
    return {**event, "args": args} if args else event


def _name_track(pid: int, tid: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
