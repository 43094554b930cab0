"""What processors did: calls of CUDA, of the operating system, threads that were scheduled, and the profiler's own work."""

import re

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.nsight.database import END, START, Database, Field, Names, Rows, process_of, rows
from feedline.analysis.traces.trace_columns import Kind

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
WORK = (_KERNELS, _COPIES, _SETS, GRAPHS)

#: In PyTorch's words (Kineto). Source of the numbers: ENUM_CUDA_MEMCPY_OPER of schema 3.25, CUPTI's CUpti_ActivityMemcpyKind.
_DIRECTIONS = ("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")
#: ENUM_CUDA_MEM_KIND of schema 3.25: Nsight Systems counts from 0 where CUPTI's CUpti_ActivityMemoryKind has 0 for unknown.
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed", "Unknown")
#: ENUM_CUPTI_SYNC_TYPE of schema 3.25, in Kineto's words.
_WAITS = ("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")

_NOT_KNOWN = 7
PLACE = {
    "start": START,
    "end": END,
    "process": Field(("globalPid",)),
    "place": Field(("streamId",)),
    "device": Field(("deviceId",)),
    "context": Field(("contextId",)),
    "correlation": Field(("correlationId",), -1),
}


def work(database: Database, names: Names) -> list[Rows]:
    """Everything that makes a device busy."""
    return [_kernels(database, names), _copies(database, names), _sets(database, names), _graphs(database, names)]


def _kernels(database: Database, names: Names) -> Rows:
    # The demangled name tells float from half, and a ring from a tree; the short one is left of it where an export has no other.
    found = database.read(_KERNELS, {**PLACE, "string": Field(("demangledName", "mangledName", "shortName", "nameId"), -1)})
    found["name"] = names.of_strings(database, found.pop("string"), "kernel without a name")
    return rows(Kind.KERNEL, found)


def _copies(database: Database, names: Names) -> Rows:
    kinds = {"way": Field(("copyKind",)), "from": Field(("srcKind",), _NOT_KNOWN), "to": Field(("dstKind",), _NOT_KNOWN)}
    found = database.read(_COPIES, {**PLACE, **kinds, "nbytes": Field(("bytes",), -1)})
    keys = np.stack([found.pop("way"), found.pop("from"), found.pop("to")], 1)
    known, index = np.unique(keys, axis=0, return_inverse=True)
    called = [names(f"Memcpy {_of(_DIRECTIONS, way, 0)} ({_of(_MEMORIES, source, _NOT_KNOWN)} -> {_of(_MEMORIES, target, _NOT_KNOWN)})")
              for way, source, target in known.tolist()]  # fmt: skip
    found["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else keys[:, 0]
    return rows(Kind.COPY, found)


def _of(words: tuple[str, ...], number: int, unknown: int) -> str:
    return words[number] if 0 <= number < len(words) else words[unknown]


def _sets(database: Database, names: Names) -> Rows:
    found = database.read(_SETS, {**PLACE, "memory": Field(("memKind",), _NOT_KNOWN), "nbytes": Field(("bytes",), -1)})
    known, index = np.unique(found.pop("memory"), return_inverse=True)
    called = [names(f"Memset ({_of(_MEMORIES, memory, _NOT_KNOWN)})") for memory in known.tolist()]
    found["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else found["start"]
    return rows(Kind.SET, found)


def _graphs(database: Database, names: Names) -> Rows:
    """CUDA graphs that were recorded as a whole, which is what nsys does unless it is told ``--cuda-graph-trace=node``."""
    found = database.read(GRAPHS, PLACE)
    found["name"] = np.full(len(found["start"]), names("CUDA graph")) if len(found["start"]) else found["start"]
    return rows(Kind.KERNEL, found)


def waits(database: Database, names: Names, done: Rows) -> Rows:
    """Synchronizations, on the stream that was waited for, or that waits.

    Their deviceId is 0 on every device in exports of schema 3.25: the context says where they were.

    Args:
        done: the work of all devices.
    """
    found = database.read(_SYNCS, {**PLACE, "way": Field(("syncType",))})
    known, index = np.unique(found.pop("way"), return_inverse=True)
    called = [names(_of(_WAITS, way, 0)) for way in known.tolist()]
    found["name"] = np.array(called, np.int64)[index.reshape(-1)] if called else found["start"]
    made = rows(Kind.SYNC, found)
    made["device"] = _devices(made, done)
    return made


def _devices(made: Rows, done: Rows) -> IntArray:
    pairs = np.stack([done["process"], done["context"].astype(np.int64), done["device"].astype(np.int64)], 1)
    where = {(process, context): device for process, context, device in np.unique(pairs, axis=0).tolist()}
    own = zip(made["process"].tolist(), made["context"].tolist(), made["device"].tolist())
    return np.array([where.get((process, context), device) for process, context, device in own], np.int64)


RUNTIMES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
SYSTEM = "OSRT_API"
_SCHEDULED = "SCHED_EVENTS"
_OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
_RUNNING = "running"  # name of the time that a thread had a CPU
_BACKTRACE = 67  # ENUM_NSYS_EVENT_CLASS, TRACE_PROCESS_EVENT_CUDABACKTRACE: the same call a second time, with its stack
_VERSION = re.compile(r"(_pt(?:sz|ds))?_v\d{4,}$")

_THREAD = {"start": START, "end": END, "place": Field(("globalTid", "globalPid"))}
_NAMED = {**_THREAD, "string": Field(("nameId",), -1)}


def calls(database: Database, names: Names) -> list[Rows]:
    """Calls of CUDA, under the names that Kineto uses: ``cudaLaunchKernel`` for ``cudaLaunchKernel_v7000``."""
    return [_runtime(database, names, table) for table in RUNTIMES]


def _runtime(database: Database, names: Names, table: str) -> Rows:
    found = database.read(table, {**_NAMED, "correlation": Field(("correlationId",), -1), "class": Field(("eventClass",))})
    twice = found.pop("class") == _BACKTRACE
    if twice.any():
        keep = ~(twice & np.isin(found["correlation"], found["correlation"][~twice]))
        found = {name: values[keep] for name, values in found.items()}
    strings = found.pop("string")
    texts = database.strings(np.unique(strings).tolist())
    found["name"] = names.of_strings(database, strings, "CUDA call", {text: _VERSION.sub("", text) for text in texts.values()})
    return _on_threads(Kind.RUNTIME, found)


def system(database: Database, names: Names) -> list[Rows]:
    """Calls of the operating system, and when threads had a CPU."""
    found = database.read(SYSTEM, _NAMED)
    found["name"] = names.of_strings(database, found.pop("string"), "system call")
    return [_on_threads(Kind.SYSTEM, found), _scheduled(database, names)]


def _scheduled(database: Database, names: Names) -> Rows:
    """From each time a thread was given a CPU to the next time it lost one."""
    found = database.read(_SCHEDULED, {"start": START, "place": Field(("globalTid",)), "in": Field(("isSchedIn",))})
    order = np.lexsort((found["in"], found["start"], found["place"]))
    start, place, given = (found[name][order] for name in ("start", "place", "in"))
    pairs = np.flatnonzero((given[:-1] == 1) & (given[1:] == 0) & (place[:-1] == place[1:])) if len(start) else np.zeros(0, np.int64)
    name = np.full(len(pairs), names(_RUNNING) if len(pairs) else 0)
    return _on_threads(Kind.SYSTEM, {"start": start[pairs], "end": start[pairs + 1], "place": place[pairs], "name": name})


def overhead(database: Database, names: Names) -> list[Rows]:
    """The profiler's own work."""
    made = []
    for table in _OVERHEADS:
        found = database.read(table, _NAMED)
        found["name"] = names.of_strings(database, found.pop("string"), "profiler")
        made.append(_on_threads(Kind.OVERHEAD, found))
    return made


def _on_threads(kind: Kind, found: dict[str, IntArray]) -> Rows:
    found["process"] = process_of(found["place"])
    return rows(kind, found)
