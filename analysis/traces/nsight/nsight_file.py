"""From a file of Nsight Systems to one trace for each process and device."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.makers import READ
from feedline.analysis.traces.nsight import activity, nvtx
from feedline.analysis.traces.nsight.database import EXPORT, THREADS, Database, Names, Rows, opened, pid, tid
from feedline.analysis.traces.nsight.nvtx import NcclPayload, told
from feedline.analysis.traces.trace_columns import (
    DEFAULT,
    DEVICE_WORK,
    EVENT_DTYPE,
    CollectiveArgs,
    Kind,
    Limits,
    Trace,
    Track,
    canonical,
    sort,
)
from feedline.profiler.errors import TraceDamaged

_META = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # since schema 3, and before it
_ENVIRONMENT = "TARGET_INFO_SYSTEM_ENV"
_CAPTURE = "META_DATA_CAPTURE"
_THREADS_NAMED = "ThreadNames"

#: (rank, number of ranks) as launchers pass them on: torchrun, Open MPI, PMIx, MPICH and Cray, Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
#: Which of several machines, from torchrun and Slurm.
_NODES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_WANTED = {*_NODES, *(name for pair in _LAUNCHERS for name in pair)}
_NODE_ARGUMENT = re.compile(r"--node[-_]rank=(\d{1,6})")
_SET = re.compile(r'(?:^|[\0;\n])([A-Z_]+)="?(\d{1,9})"?(?=$|[\0;\n])')
_MPI_RANK = re.compile(r"MPI Rank (\d{1,9})")  # what Nsight Systems names the main thread of an MPI program


@dataclass(frozen=True)
class _Session:
    """One recording.

    Attributes:
        maker: product and version.
        schema: of the export, e.g. "3.25.0"; "unknown".
        origin_ns: Unix time that times of events count from; 0: unknown, or events hold Unix time themselves.
        environment: what launchers pass on, and nothing else: an environment holds secrets.
        node: number of the machine among those of a job; 0: it is the only one, or the file does not say.
        threads: globalTid -> name.
        devices: number -> name.
    """

    maker: str
    schema: str
    origin_ns: int
    environment: Mapping[str, int]
    node: int
    threads: Mapping[int, str]
    devices: Mapping[int, str]


def _session(database: Database) -> _Session:
    """Read whatever is there of it."""
    meta: dict[str, str] = {}
    for table in _META:
        meta.update((str(name), str(value)) for name, value in database.rows(table, ("name", "value")))
    environment = _environment(database)
    return _Session(
        f"{meta.get('EXPORT_PRODUCT_NAME', 'Nsight Systems')} {meta.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        meta.get("EXPORT_SCHEMA_VERSION", "unknown"),
        _origin_in_meta(database, meta),
        environment,
        _node(database, environment),
        _threads(database),
        {number: str(name) for number, name in database.rows("TARGET_INFO_GPU", ("id", "name")) if isinstance(number, int) and name},
    )


def _origin_in_meta(database: Database, meta: Mapping[str, str]) -> int:
    """Events count from the start of the session, unless the export was told ``--ts-normalize`` or ``--ts-shift``."""
    if meta.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    shift = meta.get("EXPORT_PARAM_TIME_SHIFT", "0")
    moved = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    for (began,) in database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        if isinstance(began, int) and 0 < began < 1 << 62:
            return began - moved
    return 0


def _environment(database: Database) -> dict[str, int]:
    texts = [
        f"{variable}" for (variable,) in database.rows(_CAPTURE, ("value",), "WHERE name LIKE 'PROCESS_%:ENVIRONMENT_VARIABLE'")
    ] if database.has(_CAPTURE, "name", "value") else []  # fmt: skip
    if database.has(_ENVIRONMENT, "name", "value"):
        texts += [str(value) for (value,) in database.rows(_ENVIRONMENT, ("value",), "WHERE name = 'DeviceEnvironment'")]
    found: dict[str, int] = {}
    for text in texts:
        for name, value in _SET.findall(text):
            if name in _WANTED:
                found.setdefault(name, int(value))
    return found


def _node(database: Database, environment: Mapping[str, int]) -> int:
    """From what nsys was told to start: torchrun --node_rank=1, in one argument or in two; else from the environment."""
    if database.has(_CAPTURE, "name", "value"):
        said = [str(value) for (value,) in database.rows(_CAPTURE, ("value",), "WHERE name LIKE 'PROCESS_%:ARGUMENT_%'")]
        for argument, following in zip(said, [*said[1:], ""]):
            match = _NODE_ARGUMENT.fullmatch(argument) or _NODE_ARGUMENT.fullmatch(f"{argument}={following}")
            if match:
                return int(match[1])
    return next((environment[name] for name in _NODES if name in environment), 0)


def _threads(database: Database) -> dict[int, str]:
    numbered = [(tid, name) for name, tid in database.rows(_THREADS_NAMED, ("nameId", "globalTid"))]
    texts = database.strings(name for _, name in numbered if isinstance(name, int))
    return {tid: texts[name] for tid, name in numbered if isinstance(tid, int) and isinstance(name, int) and name in texts}


def _rank_of(
    process: int, alone: bool, told: tuple[int, int] | None, known: _Session, named: Mapping[int, str]
) -> tuple[int | None, int | None]:
    """(rank, number of ranks) of a process, None where the file does not say.

    Looked for in what NCCL said of the largest communicator, in names of threads ("MPI Rank 3"), and in the environment of the recording
    where it started a single process that used a device: of several it says nothing that tells them apart.

    Args:
        alone: no other process used a device.
        told: by NCCL.
        named: globalTid -> name given through NVTX.
    """
    if told is not None:
        return told
    given = _launched(known.environment)
    for names in (named, known.threads):
        for thread, name in names.items():
            match = _MPI_RANK.fullmatch(name)
            if match and thread - thread % THREADS == process:
                return int(match[1]), given[1] if given[0] is not None and int(match[1]) < (given[1] or 0) else None
    return given if alone else (None, None)


def _launched(environment: Mapping[str, int]) -> tuple[int | None, int | None]:
    for rank, size in _LAUNCHERS:
        if rank in environment:
            world = environment.get(size)
            return (environment[rank], world) if world is None or environment[rank] < world else (None, None)
    return None, None


#: A device on which a process spent less than this share of its kernels' time is not what it trains on: a context that somebody opened
#: on device 0 by mistake, a probe at the start.
_ASIDE_SHARE = 0.01
_RECORD = "record with nsys profile --trace=cuda,nvtx,osrt"
_SIGNS = (*activity.WORK, nvtx.TABLE, *activity.RUNTIMES, activity.SYSTEM, "StringIds", "TARGET_INFO_SYSTEM_ENV", *_META)
_NEEDED = {**dict.fromkeys(activity.WORK, ("start", "end", "deviceId")), nvtx.TABLE: ("start", "eventType"),
           **dict.fromkeys(activity.RUNTIMES, ("start", "end"))}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _File:
    """A whole file before it is parted."""

    rows: Rows
    names: list[str]
    ranges: nvtx.Ranges
    told: NcclPayload
    session: _Session
    notes: list[str]


def read_nsight(path: str, limits: Limits = DEFAULT) -> list[Trace]:
    """What ``nsys export --type sqlite`` wrote, of any schema so far.

    A trace is a process with the device that it drives; a process with work on several devices gives one for each, with the same host
    threads in all of them. Order: by device, then by process number, which under torchrun is that of local ranks. Where no process used a
    device, each process with ranges or calls of CUDA is one.

    ``rank`` is what the file says: NCCL's payload, a thread called "MPI Rank 3", or the launcher's variables where one process only used a
    device. Of a file with several traces of which it says nothing, they are numbered in this order, on from those of the machines before
    (``torchrun --node_rank``, Slurm), which a note says. A single trace has None then.

    Ranges of an NVTX domain are called "domain:range" (as ``nsys stats`` prints them): "feedline:forward", "NCCL:ncclAllReduce".

    Args:
        path: a local file.
        limits: how many rows may be read. Reading peaks at about 300 bytes an event.

    Raises:
        TraceDamaged: it is not from Nsight Systems, damaged, being written, holds nothing that happened, or more than the limits.
    """
    with opened(path, limits) as database:
        whole = _whole(database)
    parts = _parts(whole.rows)
    if not parts:
        raise TraceDamaged(f"{path} contains no GPU work, no CUDA calls and no NVTX ranges: {_RECORD}")
    return _numbered([_trace(os.path.basename(path), whole, parts, number) for number in range(len(parts))], whole.session.node)


def _whole(database: Database) -> _File:
    if not any(table in database.tables for table in _SIGNS):
        if any(table.startswith("rocpd_") for table in database.tables):
            raise TraceDamaged(f"{database.path} was written by rocprofv3 (rocpd): its tables have a form of their own. {READ}")
        raise TraceDamaged(f"{database.path} is an SQLite file, but not from Nsight Systems, which writes one with {EXPORT}")
    strange = [table for table, columns in _NEEDED.items() if table in database.tables and not database.has(table, *columns)]
    known = _session(database)
    if strange:
        raise TraceDamaged(
            f"{database.path} has an unknown schema (version {known.schema}; its table {strange[0]} lacks "
            f"{' or '.join(_NEEDED[strange[0]])}): update feedline, or export it with another version of nsys"
        )
    names = Names()
    work = activity.work(database, names)
    done = np.concatenate(work)
    hosts = [*activity.calls(database, names), *activity.system(database, names), *activity.overhead(database, names)]
    parts = [done, activity.waits(database, names, done), *hosts]
    last = max((int(part["end"].max()) for part in parts if len(part)), default=0)
    ranges = nvtx.ranges(database, names, last)
    before = sum(map(len, parts))
    for one in ranges.nccl:
        one.row += before
    rows = np.concatenate([*parts, ranges.rows])
    return _File(rows, names.all(), ranges, told(rows, names.all(), ranges.nccl), known, _notes(database, done))


def _notes(database: Database, done: Rows) -> list[str]:
    notes = []
    if len(done) and not any(database.has(table) for table in activity.RUNTIMES):
        notes.append("no CUDA API calls were recorded: what the host did between kernels is unknown")
    if database.has(activity.GRAPHS) and database.read(activity.GRAPHS, {"start": activity.PLACE["start"]})["start"].size:
        notes.append("CUDA graphs were recorded as whole graphs, so their kernels, including collectives, cannot be distinguished: "
                     "record with nsys profile --cuda-graph-trace=node")  # fmt: skip
    return notes


def _parts(rows: Rows) -> list[tuple[int, list[int]]]:
    """(globalPid, its devices) of each trace, in order."""
    work = rows[np.isin(rows["kind"], DEVICE_WORK)]
    if not len(work):
        others = rows[np.isin(rows["kind"], (Kind.RUNTIME, Kind.ANNOTATION, Kind.OPERATOR))]
        return [(process, []) for process in np.unique(others["process"]).tolist()]
    found = []
    for process in np.unique(work["process"]).tolist():
        mine = work[work["process"] == process]
        devices, index = np.unique(mine["device"], return_inverse=True)
        took = np.bincount(index.reshape(-1), (mine["end"] - mine["start"]) * (mine["kind"] == Kind.KERNEL))
        main = [int(number) for number, time in zip(devices.tolist(), took.tolist()) if time > _ASIDE_SHARE * took.sum()]
        main = main or [int(devices[0])]
        aside = [int(number) for number in devices.tolist() if number not in main]
        found += [(process, [number, *(aside if number == main[0] else [])]) for number in main]
    return sorted(found, key=lambda part: (part[1][0], part[0]))


def _trace(source: str, whole: _File, parts: list[tuple[int, list[int]]], number: int) -> Trace:
    process, devices = parts[number]
    shared = sum(one == process for one, _ in parts) > 1
    alone = len({one for one, _ in parts}) == 1
    rows = whole.rows
    mine = (rows["process"] == process) & ((rows["device"] < 0) | np.isin(rows["device"], devices))
    if alone and devices:  # of processes without a device, its loader's workers for one, the file does not say whose they are
        mine |= (rows["process"] != process) & (rows["kind"] == Kind.ANNOTATION)
    chosen = np.flatnonzero(mine)
    told_rank = whole.told.ranks.get(process)
    rank, world = (None, None) if shared else _rank_of(process, alone, told_rank, whole.session, whole.ranges.threads)
    tracks, track = _tracks(rows[chosen], whole)
    origin, shift = _origin(whole.session, rows["start"][chosen])
    events = _events(rows[chosen], track, whole.told.index[chosen], shift)
    names = canonical(events["name"], whole.names, str)
    shapes = canonical(events["shape"], whole.ranges.shapes, lambda shape: (shape.inputs, shape.dtypes))
    collectives = canonical(events["collective"], whole.told.args, CollectiveArgs.order)
    sort(events)
    notes = list(whole.notes)
    if shared:
        notes.append(f"process {pid(process)} drives several devices: each is treated as a separate rank with the same host threads")
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
        devices={number: name for number, name in whole.session.devices.items() if number in devices},
        notes=notes,
    )


def _numbered(traces: list[Trace], node: int) -> list[Trace]:
    """Ranks by order where the file says none: every machine of a job is taken to have as many."""
    if len(traces) < 2 or any(trace.rank is not None for trace in traces):
        return traces
    first = node * len(traces)
    note = f"the file does not contain the ranks of its processes: they are numbered from {first}, in device order"
    return [replace(trace, rank=first + place, notes=[*trace.notes, note]) for place, trace in enumerate(traces)]


def _tracks(rows: Rows, whole: _File) -> tuple[list[Track], IntArray]:
    key, parts = np.zeros(len(rows), np.int64), []
    for name in ("device", "process", "place"):
        values, index = np.unique(rows[name], return_inverse=True)
        parts.append(values.tolist())
        key = key * len(values) + index.reshape(-1)
    found, index = np.unique(key, return_inverse=True)
    places = len(parts[2])
    known = [
        (parts[0][one // places // len(parts[1])], parts[1][one // places % len(parts[1])], parts[2][one % places])
        for one in found.tolist()
    ]
    threads = {**whole.session.threads, **whole.ranges.threads}
    tracks = [
        Track(str(pid(process)), str(tid(place) if number < 0 else place), number, threads.get(place, "") if number < 0 else "")
        for number, process, place in known
    ]
    return tracks, index.reshape(-1)


def _origin(known: _Session, start: IntArray) -> tuple[int, int]:
    """(origin_ns, what to take off each start): times that an export normalized to Unix time are brought back to small ones."""
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
