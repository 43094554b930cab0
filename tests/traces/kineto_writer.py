"""Write a trace as Kineto's JSON, which torch.profiler's readers, Perfetto and ``read_kineto``
take.
"""

import gzip
import json
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from feedline.analysis.traces.perfetto import _micros
from feedline.analysis.traces.trace_columns import Trace
from feedline.analysis.traces.windows import _Texts

#: Times count from a multiple of this, as in libkineto, so that those of ranks stay comparable and
#: a double holds their nanoseconds.
BASE_NS = 30 * 86_400 * 10**9
#: No event is at 0, which is how broken rows look.
AHEAD_NS = 1_000


def write_kineto(trace: Trace, path: Path | str) -> None:
    """Write a trace so that ``read_kineto`` gives it again; packed if the name ends in ``.gz``. The
    notes are not written.

    Events are written as they are: those on one track that overlap without nesting stay on it.
    """
    path = Path(path)
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, 0) if path.suffix == ".gz" else raw as packed,
    ):
        with TextIOWrapper(packed, encoding="utf-8", newline="\n") as file:
            base_ns = trace.origin_ns // BASE_NS * BASE_NS - AHEAD_NS
            head = json.dumps(_head(trace, base_ns))
            file.write(head[:-1] + ',\n"traceEvents": [')
            comma = "\n"
            for event in _events(trace, base_ns):
                file.write(comma + event)
                comma = ",\n"
            file.write("\n]}\n")


def _head(trace: Trace, base_ns: int) -> dict[str, Any]:
    distributed: dict[str, Any] = {}
    if trace.rank is not None:
        distributed["rank"] = trace.rank
    if trace.world_size is not None:
        distributed["world_size"] = trace.world_size
    if trace.groups:
        distributed["pg_config"] = [
            {"pg_name": name, "pg_size": len(ranks), "ranks": ranks}
            for name, ranks in trace.groups.items()
        ]
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": base_ns,
        "displayTimeUnit": "ns",
        "feedline": {"origin_ns": trace.origin_ns},
        "deviceProperties": [
            {"id": number, "name": name} for number, name in trace.devices.items()
        ],
    } | ({"distributedInfo": distributed} if distributed else {})


def _events(trace: Trace, base_ns: int) -> Iterator[str]:
    places = [
        f'"pid": {_identity(track.process)}, "tid": {_identity(track.thread)}'
        for track in trace.tracks
    ]
    for track, place in zip(trace.tracks, places):
        if (
            track.name or track.device >= 0
        ):  # a stream without a name must not get that of a thread of the same number
            args = {"name": track.name} | ({"device": track.device} if track.device >= 0 else {})
            yield (
                f'{{"name": "thread_name", "ph": "M", "ts": 0, {place}, "args": '
                f"{json.dumps(args)}}}"
            )
    texts = _Texts(trace)
    for (
        start,
        wall,
        correlation,
        nbytes,
        name,
        track_,
        shape,
        collective,
        kind,
    ) in trace.events.tolist():
        times = f'"ts": {_micros(trace.origin_ns + start - base_ns)}, "dur": {_micros(wall)}'
        args_ = texts.args(track_, correlation, nbytes, shape, collective)
        yield (
            f'{{"ph": "X", {texts.categories[kind]}, {texts.names[name]}, {places[track_]}, '
            f'{times}, "args": {{{args_}}}}}'
        )


def _identity(text: str) -> str:
    """A number where the text is one, as Kineto writes processes and threads."""
    digits = text.removeprefix("-")
    number = digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(text)) == text
    return text if number else json.dumps(text)
