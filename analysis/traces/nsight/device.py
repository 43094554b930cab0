"""What devices did: kernels, copies, memory sets, whole graphs, and who waited for them."""

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.columns import Kind
from feedline.analysis.traces.nsight.database import Database, Field
from feedline.analysis.traces.nsight.rows import END, START, Names, Rows, rows

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
