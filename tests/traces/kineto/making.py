"""Files as others write them, piece by piece."""

import json
from pathlib import Path
from typing import Any

from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.trace_columns import Trace

TS = 1_700_000_000_000_000


def event(name: str = "aten::mm", ts: Any = TS, dur: Any = 5, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 2,
        "ts": ts,
        "dur": dur,
    } | more


def kernel(name: str = "gemm", ts: Any = TS, dur: Any = 5, **args: Any) -> dict[str, Any]:
    return event(
        name,
        ts,
        dur,
        cat="kernel",
        pid=0,
        tid=7,
        args={"device": 0, "stream": 7, "correlation": 3} | args,
    )


def text(*events: dict[str, Any] | str, **around: Any) -> str:
    """JSON with a list of events; a text among them stands as it is."""
    listed = ",\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in events)
    return json.dumps({"schemaVersion": 1} | around)[:-1] + f', "traceEvents": [\n{listed}\n]}}'


def read(folder: Path, content: str | bytes, name: str = "trace.json", **options: Any) -> Trace:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_kineto(str(folder / name), **options)


def rows(trace: Trace) -> list[tuple[str, int, int]]:
    """Name, absolute start and wall of each event, ns."""
    return [
        (trace.names[row["name"]], int(row["start"]) + trace.origin_ns, int(row["wall"]))
        for row in trace.events
    ]
