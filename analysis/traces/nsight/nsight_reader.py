"""From a file of Nsight Systems to one trace for each process and device.

Each says what devices and hosts did.
"""

import os
import re
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.makers import READ
from feedline.analysis.traces.nsight import nvtx
from feedline.analysis.traces.nsight.database import (
    END,
    EVENT_ROW_DTYPE,
    EXPORT,
    META_TABLES,
    START,
    THREADS,
    TIMES,
    Database,
    Names,
    Recording,
    RowField,
    open_database,
    process_of,
    rank_of,
    recording_of,
)
from feedline.analysis.traces.nsight.nvtx import NcclPayload, nccl_of_kernels
from feedline.analysis.traces.trace_columns import (
    DEFAULT,
    DEVICE_WORK,
    EVENT_DTYPE,
    CollectiveArgs,
    Kind,
    Rows,
    Trace,
    TraceLimits,
    Track,
    canonical,
    sort,
)
from feedline.profiler.errors import TraceDamaged
from feedline.profiler.message import Message

NUMBERED = "numbered_by_device"  # id of the note that the file does not contain the ranks
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SET_TABLE = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_WORK_TABLES = (_KERNELS, _COPY_TABLE, _SET_TABLE, _GRAPHS)

#: In PyTorch's words (Kineto). Source of the numbers: ENUM_CUDA_MEMCPY_OPER of schema 3.25, CUPTI's
#: CUpti_ActivityMemcpyKind.
_DIRECTIONS = (
    "Unknown",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "HtoD",
    "DtoH",
    "DtoD",
)
#: ENUM_CUDA_MEM_KIND of schema 3.25: Nsight Systems counts from 0 where CUPTI's
#: CUpti_ActivityMemoryKind has 0 for unknown.
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed", "Unknown")
#: ENUM_CUPTI_SYNC_TYPE of schema 3.25, in Kineto's words.
_WAIT_NAMES = ("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")

_NOT_KNOWN = 7
_PLACE_FIELDS = {
    "start": START,
    "end": END,
    "process": RowField(("globalPid",)),
    "place": RowField(("streamId",)),
    "device": RowField(("deviceId",)),
    "context": RowField(("contextId",)),
    "correlation": RowField(("correlationId",), -1),
}
_RUNTIMES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_SYSTEM_TABLE = "OSRT_API"
_SCHEDULED = "SCHED_EVENTS"
_OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
_RUNNING = "running"  # name of the time that a thread had a CPU
# ENUM_NSYS_EVENT_CLASS, TRACE_PROCESS_EVENT_CUDABACKTRACE: the same call a second time, with its
# stack
_BACKTRACE = 67
_API_VERSION = re.compile(r"(_pt(?:sz|ds))?_v\d{4,}$")
_THREAD = {"start": START, "end": END, "place": RowField(("globalTid", "globalPid"))}
_NAMED_FIELDS = {**_THREAD, "string": RowField(("nameId",), -1)}
#: A device on which a process spent less than this share of its kernels' time is not what it trains
#: on: a context that somebody opened on device 0 by mistake, a probe at the start.
_ASIDE_SHARE = 0.01
_HOW_TO_RECORD = "record with nsys profile --trace=cuda,nvtx,osrt"
_SIGNS = (
    *_WORK_TABLES,
    nvtx.TABLE,
    *_RUNTIMES,
    _SYSTEM_TABLE,
    "StringIds",
    "TARGET_INFO_SYSTEM_ENV",
    *META_TABLES,
)
_NEEDED = {**dict.fromkeys(_WORK_TABLES, ("start", "end", "deviceId")), nvtx.TABLE: ("start", "eventType"),
           **dict.fromkeys(_RUNTIMES, ("start", "end"))}  # fmt: skip


def _device_work(database: Database, names: Names) -> list[Rows]:
    """Read everything that makes a device busy."""
    return [
        _kernels(database, names),
        _copies(database, names),
        _sets(database, names),
        _graphs(database, names),
    ]


def _kernels(database: Database, names: Names) -> Rows:
    # The demangled name tells float from half, and a ring from a tree; the short one is left of it
    # where an export has no other.
    columns = database.read(
        _KERNELS,
        {
            **_PLACE_FIELDS,
            "string": RowField(("demangledName", "mangledName", "shortName", "nameId"), -1),
        },
    )
    columns["name"] = names.of_strings(database, columns.pop("string"), "kernel without a name")
    return _event_rows(Kind.KERNEL, columns)


def _copies(database: Database, names: Names) -> Rows:
    kinds = {
        "way": RowField(("copyKind",)),
        "from": RowField(("srcKind",), _NOT_KNOWN),
        "to": RowField(("dstKind",), _NOT_KNOWN),
    }
    columns = database.read(
        _COPY_TABLE, {**_PLACE_FIELDS, **kinds, "nbytes": RowField(("bytes",), -1)}
    )
    keys = np.stack([columns.pop("way"), columns.pop("from"), columns.pop("to")], 1)
    known, index = np.unique(keys, axis=0, return_inverse=True)
    called = [names(f"Memcpy {_of(_DIRECTIONS, way, 0)} ({_of(_MEMORIES, source, _NOT_KNOWN)} -> "
                    f"{_of(_MEMORIES, target, _NOT_KNOWN)})")
              for way, source, target in known.tolist()]  # fmt: skip
    columns["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else keys[:, 0]
    return _event_rows(Kind.COPY, columns)


def _of(words: tuple[str, ...], number: int, unknown: int) -> str:
    return words[number] if 0 <= number < len(words) else words[unknown]


def _sets(database: Database, names: Names) -> Rows:
    columns = database.read(
        _SET_TABLE,
        {
            **_PLACE_FIELDS,
            "memory": RowField(("memKind",), _NOT_KNOWN),
            "nbytes": RowField(("bytes",), -1),
        },
    )
    known, index = np.unique(columns.pop("memory"), return_inverse=True)
    called = [names(f"Memset ({_of(_MEMORIES, memory, _NOT_KNOWN)})") for memory in known.tolist()]
    columns["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else columns["start"]
    return _event_rows(Kind.SET, columns)


def _graphs(database: Database, names: Names) -> Rows:
    """Read CUDA graphs that were recorded as a whole.

    That is what nsys does unless it is told ``--cuda-graph-trace=node``.
    """
    columns = database.read(_GRAPHS, _PLACE_FIELDS)
    columns["name"] = (
        np.full(len(columns["start"]), names("CUDA graph"))
        if len(columns["start"])
        else columns["start"]
    )
    return _event_rows(Kind.KERNEL, columns)


def _waits(database: Database, names: Names, done: Rows) -> Rows:
    """Read synchronizations, on the stream that was waited for, or that waits.

    Their deviceId is 0 on every device in exports of schema 3.25: the context says where they were.

    Args:
        database: the file.
        names: filled with theirs.
        done: the work of all devices.
    """
    columns = database.read(_SYNCS, {**_PLACE_FIELDS, "way": RowField(("syncType",))})
    known, index = np.unique(columns.pop("way"), return_inverse=True)
    called = [names(_of(_WAIT_NAMES, way, 0)) for way in known.tolist()]
    columns["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else columns["start"]
    table = _event_rows(Kind.SYNC, columns)
    table["device"] = _devices(table, done)
    return table


def _devices(table: Rows, done: Rows) -> IntArray:
    pairs = np.stack(
        [done["process"], done["context"].astype(np.int64), done["device"].astype(np.int64)], 1
    )
    where = {
        (process, context): device for process, context, device in np.unique(pairs, axis=0).tolist()
    }
    own = zip(table["process"].tolist(), table["context"].tolist(), table["device"].tolist())
    return np.array(
        [where.get((process, context), device) for process, context, device in own], np.int64
    )


def _calls(database: Database, names: Names) -> list[Rows]:
    """Read calls of CUDA, under Kineto's names.

    ``cudaLaunchKernel_v7000`` becomes ``cudaLaunchKernel``.
    """
    return [_runtime(database, names, table) for table in _RUNTIMES]


def _runtime(database: Database, names: Names, table: str) -> Rows:
    columns = database.read(
        table,
        {
            **_NAMED_FIELDS,
            "correlation": RowField(("correlationId",), -1),
            "class": RowField(("eventClass",)),
        },
    )
    twice = columns.pop("class") == _BACKTRACE
    if twice.any():
        keep = ~(twice & np.isin(columns["correlation"], columns["correlation"][~twice]))
        columns = {name: values[keep] for name, values in columns.items()}
    strings = columns.pop("string")
    texts = database.strings(np.unique(strings).tolist())
    columns["name"] = names.of_strings(
        database,
        strings,
        "CUDA call",
        {text: _API_VERSION.sub("", text) for text in texts.values()},
    )
    return _on_threads(Kind.RUNTIME, columns)


def _system(database: Database, names: Names) -> list[Rows]:
    """Read calls of the operating system, and when threads had a CPU."""
    columns = database.read(_SYSTEM_TABLE, _NAMED_FIELDS)
    columns["name"] = names.of_strings(database, columns.pop("string"), "system call")
    return [_on_threads(Kind.SYSTEM, columns), _scheduled(database, names)]


def _scheduled(database: Database, names: Names) -> Rows:
    """Read from each time a thread was given a CPU to the next time it lost one."""
    columns = database.read(
        _SCHEDULED,
        {"start": START, "place": RowField(("globalTid",)), "in": RowField(("isSchedIn",))},
    )
    order = np.lexsort((columns["in"], columns["start"], columns["place"]))
    start, place, given = (columns[name][order] for name in ("start", "place", "in"))
    pairs = (
        np.flatnonzero((given[:-1] == 1) & (given[1:] == 0) & (place[:-1] == place[1:]))
        if len(start)
        else np.zeros(0, np.int64)
    )
    name = np.full(len(pairs), names(_RUNNING) if len(pairs) else 0)
    return _on_threads(
        Kind.SYSTEM,
        {"start": start[pairs], "end": start[pairs + 1], "place": place[pairs], "name": name},
    )


def _overhead(database: Database, names: Names) -> list[Rows]:
    """Return the profiler's own work."""
    tables = []
    for table in _OVERHEADS:
        columns = database.read(table, _NAMED_FIELDS)
        columns["name"] = names.of_strings(database, columns.pop("string"), "profiler")
        tables.append(_on_threads(Kind.OVERHEAD, columns))
    return tables


def _on_threads(kind: Kind, columns: dict[str, IntArray]) -> Rows:
    columns["process"] = process_of(columns["place"])
    return _event_rows(kind, columns)


@dataclass(frozen=True, eq=False)
class _File:
    """A whole file before it is parted."""

    rows: Rows
    names: list[str]
    ranges: nvtx.TracedRanges
    told: NcclPayload
    session: Recording
    notes: list[str]


def read_nsight(path: str, limits: TraceLimits = DEFAULT) -> list[Trace]:
    """Read what ``nsys export --type sqlite`` wrote, of any schema so far.

    A trace is a process with the device that it drives; a process with work on several devices
    gives one for each, with the same host threads in all of them. Order: by device, then by process
    number, which under torchrun is that of local ranks. Where no process used a device, each
    process with ranges or calls of CUDA is one.

    ``rank`` is what the file says: NCCL's payload, a thread called "MPI Rank 3", or the launcher's
    variables where one process only used a device. Of a file with several traces of which it says
    nothing, they are numbered in this order, on from those of the machines before (``torchrun
    --node_rank``, Slurm), which a note says. A single trace has None then.

    Ranges of an NVTX domain are called "domain:range" (as ``nsys stats`` prints them):
    "feedline:forward", "NCCL:ncclAllReduce".

    Args:
        path: a local file.
        limits: how many rows may be read. Reading peaks at about 300 bytes an event.

    Raises:
        TraceDamaged: it is not from Nsight Systems, damaged, being written, holds nothing that
            happened, or more than the limits.
    """
    with open_database(path, limits) as database:
        whole = _whole(database)
    parts = _parts(whole.rows)
    if not parts:
        raise TraceDamaged(
            f"{path} contains no GPU work, no CUDA calls and no NVTX ranges: {_HOW_TO_RECORD}"
        )
    return _numbered(
        [_trace(os.path.basename(path), whole, parts, number) for number in range(len(parts))],
        whole.session.node,
    )


def _whole(database: Database) -> _File:
    if not any(table in database.tables for table in _SIGNS):
        if any(table.startswith("rocpd_") for table in database.tables):
            raise TraceDamaged(
                f"{database.path} was written by rocprofv3 (rocpd): its tables have a form of "
                f"their own. {READ}"
            )
        raise TraceDamaged(
            f"{database.path} is an SQLite file, but not from Nsight Systems, which writes one "
            f"with {EXPORT}"
        )
    strange = [
        table
        for table, columns in _NEEDED.items()
        if table in database.tables and not database.has(table, *columns)
    ]
    known = recording_of(database)
    if strange:
        raise TraceDamaged(
            f"{database.path} has an unknown schema (version {known.schema}; its table "
            f"{strange[0]} lacks "
            f"{' or '.join(_NEEDED[strange[0]])}): update feedline, or export it with another "
            f"version of nsys"
        )
    names = Names()
    work = _device_work(database, names)
    done = np.concatenate(work)
    hosts = [*_calls(database, names), *_system(database, names), *_overhead(database, names)]
    parts = [done, _waits(database, names, done), *hosts]
    last = max((int(part["end"].max()) for part in parts if len(part)), default=0)
    ranges = nvtx.read_ranges(database, names, last)
    before = sum(map(len, parts))
    for payload in ranges.nccl:
        payload.row += before
    rows = np.concatenate([*parts, ranges.rows])
    return _File(
        rows,
        names.all(),
        ranges,
        nccl_of_kernels(rows, names.all(), ranges.nccl),
        known,
        _notes(database, done),
    )


def _notes(database: Database, done: Rows) -> list[str]:
    notes = []
    if len(done) and not any(database.has(table) for table in _RUNTIMES):
        notes.append(
            "no CUDA API calls were recorded: what the host did between kernels is unknown"
        )
    if (
        database.has(_GRAPHS)
        and database.read(_GRAPHS, {"start": _PLACE_FIELDS["start"]})["start"].size
    ):
        notes.append("CUDA graphs were recorded as whole graphs, so their kernels, including "
                     "collectives, cannot be distinguished: "
                     "record with nsys profile --cuda-graph-trace=node")  # fmt: skip
    return notes


def _parts(rows: Rows) -> list[tuple[int, list[int]]]:
    """Return (globalPid, its devices) of each trace, in order."""
    work = rows[np.isin(rows["kind"], DEVICE_WORK)]
    if not len(work):
        others = rows[np.isin(rows["kind"], (Kind.RUNTIME, Kind.ANNOTATION, Kind.OPERATOR))]
        return [(process, []) for process in np.unique(others["process"]).tolist()]
    parts = []
    for process in np.unique(work["process"]).tolist():
        mine = work[work["process"] == process]
        devices, index = np.unique(mine["device"], return_inverse=True)
        took = np.bincount(
            index.reshape(-1), (mine["end"] - mine["start"]) * (mine["kind"] == Kind.KERNEL)
        )
        main = [
            int(number)
            for number, time in zip(devices.tolist(), took.tolist())
            if time > _ASIDE_SHARE * took.sum()
        ]
        main = main or [int(devices[0])]
        aside = [int(number) for number in devices.tolist() if number not in main]
        parts += [(process, [number, *(aside if number == main[0] else [])]) for number in main]
    return sorted(parts, key=lambda part: (part[1][0], part[0]))


def _trace(source: str, whole: _File, parts: list[tuple[int, list[int]]], number: int) -> Trace:
    process, devices = parts[number]
    shared = sum(value == process for value, _ in parts) > 1
    alone = len({value for value, _ in parts}) == 1
    rows = whole.rows
    mine = (rows["process"] == process) & ((rows["device"] < 0) | np.isin(rows["device"], devices))
    if (
        alone and devices
        # of processes without a device, its loader's workers for one, the file does not say whose they
        # are
    ):
        mine |= (rows["process"] != process) & (rows["kind"] == Kind.ANNOTATION)
    chosen = np.flatnonzero(mine)
    told_rank = whole.told.ranks.get(process)
    rank, world = (
        (None, None)
        if shared
        else rank_of(process, alone, told_rank, whole.session, whole.ranges.threads)
    )
    tracks, track = _tracks(rows[chosen], whole)
    origin, shift = _origin(whole.session, rows["start"][chosen])
    events = _events(rows[chosen], track, whole.told.index[chosen], shift)
    names = canonical(events["name"], whole.names, str)
    shapes = canonical(
        events["shape"], whole.ranges.shapes, lambda shape: (shape.inputs, shape.dtypes)
    )
    collectives = canonical(events["collective"], whole.told.args, CollectiveArgs.order)
    sort(events)
    notes = list(whole.notes)
    if shared:
        notes.append(
            f"process {_pid_of(process)} drives several devices: each is treated as a separate "
            f"rank with the same host threads"
        )
    return Trace(
        source=source,
        maker="nsight",
        rank=rank,
        world_size=world,
        origin_ns=origin,
        events=events,
        names=names,
        tracks=tracks,
        shapes=shapes,
        collectives=collectives,
        devices={
            number: name for number, name in whole.session.devices.items() if number in devices
        },
        notes=notes,
    )


def _numbered(traces: list[Trace], node: int) -> list[Trace]:
    """Give ranks numbers by order where the file says none.

    Every machine of a job is taken to have as many.
    """
    if len(traces) < 2 or any(trace.rank is not None for trace in traces):
        return traces
    first = node * len(traces)
    note = Message(
        f"the file does not contain the ranks of its processes: they are numbered from "
        f"{first}, in device order",
        NUMBERED,
    )
    return [
        replace(trace, rank=first + place, notes=[*trace.notes, note])
        for place, trace in enumerate(traces)
    ]


def _tracks(rows: Rows, whole: _File) -> tuple[list[Track], IntArray]:
    key, parts = np.zeros(len(rows), np.int64), []
    for name in ("device", "process", "place"):
        values, index = np.unique(rows[name], return_inverse=True)
        parts.append(values.tolist())
        key = key * len(values) + index.reshape(-1)
    keys, index = np.unique(key, return_inverse=True)
    places = len(parts[2])
    known = [
        (
            parts[0][value // places // len(parts[1])],
            parts[1][value // places % len(parts[1])],
            parts[2][value % places],
        )
        for value in keys.tolist()
    ]
    threads = {**whole.session.threads, **whole.ranges.threads}
    tracks = [
        Track(
            str(_pid_of(process)),
            str(_tid_of(place) if number < 0 else place),
            number,
            threads.get(place, "") if number < 0 else "",
        )
        for number, process, place in known
    ]
    return tracks, index.reshape(-1)


def _origin(known: Recording, start: IntArray) -> tuple[int, int]:
    """Return (origin_ns, what to take off each start).

    Times that an export normalized to Unix time are brought back to small ones.
    """
    if known.origin_ns or not len(start):
        return known.origin_ns, 0
    first = int(start.min())
    return (first, first) if first > 10**18 else (0, 0)  # 10**18 ns: the year 2001


def _events(rows: Rows, track: IntArray, collective: IntArray, shift: int) -> Rows:
    events = np.zeros(len(rows), EVENT_DTYPE)
    events["start"], events["wall"] = rows["start"] - shift, rows["end"] - rows["start"]
    for column in ("correlation", "nbytes", "shape", "kind", "name"):
        events[column] = rows[column]
    events["correlation"][events["correlation"] == 0] = -1
    events["track"], events["collective"] = track, collective
    return events


def _pid_of(global_id: int) -> int:
    """Return the operating system's number of the process."""
    return global_id // THREADS % THREADS


def _tid_of(global_tid: int) -> int:
    """Return the operating system's number of the thread."""
    return global_tid % THREADS


def _event_rows(kind: Kind, columns: dict[str, IntArray]) -> Rows:
    """Make a table of one kind.

    Columns of EVENT_ROW_DTYPE that are missing are "none"; an end before its start becomes the
    start.
    """
    count = len(columns["start"])
    table = np.zeros(count, EVENT_ROW_DTYPE)
    for name, missing in (("correlation", -1), ("nbytes", -1), ("device", -1), ("shape", -1)):
        table[name] = missing
    for name, values in columns.items():
        if name in (EVENT_ROW_DTYPE.names or ()):
            limit = TIMES if EVENT_ROW_DTYPE[name].itemsize == 8 else 2**31 - 1
            table[name] = (
                values
                if name in ("process", "place", "correlation")
                else np.clip(values, -limit, limit)
            )
    table["end"] = np.maximum(table["end"], table["start"])
    table["kind"] = kind
    return table
