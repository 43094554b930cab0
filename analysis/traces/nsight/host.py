"""What processors did: calls of CUDA, of the operating system, threads that were scheduled, and the profiler's own work."""

import re

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.columns import Kind
from feedline.analysis.traces.nsight.database import Database, Field
from feedline.analysis.traces.nsight.ids import process_of
from feedline.analysis.traces.nsight.rows import END, START, Names, Rows, rows

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
