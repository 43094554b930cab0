"""Tells who wrote a file, by its content.

rocprof and XProf are adapted, others are refused by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.traces.trace_columns import Kind, Rows, Track

#: rocprof's names of processes (ROCm/rocprofiler, bin/tblextr.py), from 2020 on with a number
#: before them.
_ROCPROF = re.compile(
    r"^(?:\d+ )?(?:(CPU (?:HIP|HSA|KFD) API)|(COPY)|(Markers and Ranges)|GPU(\d+))$"
)
#: XProf's (openxla/xprof, convert/trace_viewer), one a device, and of its threads those that are
#: streams.
_XPROF = re.compile(r"^/(?:job:.*/)?(?:(host):\w+|device:(?:GPU|TPU|CUSTOM):(\d+))")
_STREAM = re.compile(r"^Stream #(\d+)")
_XLA_OPERATIONS = "XLA Ops"
_COPY_NAMES = re.compile(r"^(Memcpy|hcMemcpy|Copy)")
_SET_NAMES = re.compile(r"^(Memset|Fill)")
_BARRIER = "<barrier packet>"  # of the queue: it waits, and computes nothing
_PYTHON = "$"  # before the name of a Python function
READ = (
    "feedline ingest reads traces of torch.profiler (JSON) and Nsight Systems (SQLite), and "
    "those of rocprof, JAX and TensorFlow (JSON)"
)
_LOOKED_AT = 1 << 16  # bytes of a file
_MIN_PACKETS = 3  # packets that no text begins with by chance
_STACKS = "it holds samples of host stacks, and nothing of a device"
_FILE_EVENTS = "it holds reads and writes of files, and nothing of a device"
_MEMORY_SNAPSHOT = (
    "it holds a snapshot of memory, no times of kernels; docs.pytorch.org/memory_viz shows it"
)
_LAST = "it holds the last collectives of a rank, no times of kernels"
_OWN_FORM = "it has a form of its own, which is not read here"
_CONTROL = re.compile(rb"[\x00-\x08]")  # text has none


def maker_of(processes: Mapping[str, str]) -> str | None:
    """Tell ``rocprof`` or ``xprof`` by the names of processes; None: neither."""
    for maker, pattern in (("rocprof", _ROCPROF), ("xprof", _XPROF)):
        if any(pattern.match(name) for name in processes.values()):
            return maker
    return None


def adapt_events(
    rows: Rows, tracks: list[Track], names: Sequence[str], processes: Mapping[str, str]
) -> None:
    """Give the events of a foreign file their kinds, in place.

    Those of devices go on tracks of devices.

    Args:
        rows: of events.
        tracks: that ``rows`` refer to.
        names: of events.
        processes: pid -> name.
    """
    streams = {track.process for track in tracks if _STREAM.match(track.name)}
    known = [
        _place(track, processes.get(track.process, ""), track.process in streams)
        for track in tracks
    ]
    tracks[:] = [track for track, _ in known]
    rows["kind"] = np.array([kind for _, kind in known], np.uint8)[rows["track"]]
    kernels, annotations = (rows["kind"] == kind for kind in (Kind.KERNEL, Kind.ANNOTATION))
    for chosen, matches, kind in (
        (kernels, [name == _BARRIER for name in names], Kind.SYNC),
        (kernels, [bool(_SET_NAMES.match(name)) for name in names], Kind.SET),
        (kernels, [bool(_COPY_NAMES.match(name)) for name in names], Kind.COPY),
        (annotations, [name.startswith(_PYTHON) for name in names], Kind.PYTHON),
    ):
        rows["kind"][chosen & np.array(matches, bool)[rows["name"]]] = kind


def _place(track: Track, process: str, has_streams: bool) -> tuple[Track, Kind]:
    """Return where a track's events are, and what they are unless their names say more."""
    if rocprof := _ROCPROF.match(process):
        calls, copies, ranges, gpu = rocprof.groups()
        if calls or ranges:
            return track, Kind.RUNTIME if calls else Kind.ANNOTATION
        return replace(
            track, device=int(gpu or 0), thread="copy" if copies else track.thread
        ), Kind.COPY if copies else Kind.KERNEL
    if xprof := _XPROF.match(process):
        host, device = xprof.groups()
        if host:
            return track, Kind.ANNOTATION
        stream = _STREAM.match(track.name)
        works = bool(stream) if has_streams else track.name == _XLA_OPERATIONS
        placed = replace(track, device=int(device), thread=stream[1] if stream else track.thread)
        return placed, Kind.KERNEL if works else Kind.DEVICE_ANNOTATION
    return track, Kind.OTHER


@dataclass(frozen=True)
class _Maker:
    """A program that writes files that are taken for traces.

    Attributes:
        found: in the bytes of the file.
        wrote: who wrote it, in words.
        holds: what is in it, or what to do with it.
    """

    found: re.Pattern[bytes]
    wrote: str
    holds: str


def _maker(text: bytes, wrote: str, holds: str) -> _Maker:
    return _Maker(re.compile(text, re.DOTALL), wrote, holds)


#: Files that are no _JSON, by their first bytes.
_BINARY = (
    _maker(rb"^\x80[\x02-\x05].*(device_traces|segments)", "torch.cuda.memory", _MEMORY_SNAPSHOT),
    _maker(rb"^\x80[\x02-\x05].*pg_config", "torch's Flight Recorder", _LAST),
    _maker(rb"^\x80[\x02-\x05]", "Python's pickle", "it is no trace"),
    _maker(rb"^PAR1", "a program that writes Parquet", "it is no trace"),
    _maker(
        rb"^\s*<(!DOCTYPE html|html)",
        "a program that writes HTML",
        "pass the trace from which the page was made",
    ),
    _maker(
        rb"^\x0a.{2,40}/(host|device):",
        "the profiler of JAX or TensorFlow (XPlane)",
        "pass the trace.json.gz beside it",
    ),
)
_PERFETTO = _maker(rb"^\x0a", "a program that writes Perfetto's protobuf", _OWN_FORM)

#: _JSON without a list of events, or with one that is none.
_JSON = (
    _maker(
        rb"speedscope\.app/file-format-schema", "py-spy or another sampler, for speedscope", _STACKS
    ),
    _maker(rb'"root_frame"', "pyinstrument", _STACKS),
    _maker(rb'^(?=.*"elapsed_time_sec").*"files"', "Scalene", _STACKS),
    _maker(rb'"rocprofiler-sdk-tool"', "rocprofv3", _OWN_FORM),
    _maker(rb'"device_traces"|"allocator_settings"', "torch.cuda.memory", _MEMORY_SNAPSHOT),
    _maker(rb'^(?=.*"pg_config").*"entries"', "torch's Flight Recorder", _LAST),
    _maker(
        rb'"schema"\s*:\s*"[\d.]+-chakra',
        "torch's ExecutionTraceObserver (Chakra)",
        "it holds what ran, but not when on the device",
    ),
    _maker(rb'^\s*\{\s*"nodes"\s*:.*"timeDeltas"', "V8", "it holds samples of JavaScript"),
    _maker(
        rb'"CudaEvent"',
        "Nsight Systems, as JSON",
        "export it as SQLite: nsys export --type sqlite REPORT.nsys-rep",
    ),
)


#: A list of events without commas between them.
_LINES_OF_DFTRACER = _maker(
    rb'^\s*\[\s*\{[^\n]*"cat"\s*:\s*"(POSIX|STDIO|dftracer)"[^\n]*\}\s*\{', "DFTracer", _FILE_EVENTS
)

#: Lists of events, none of which is of a known category: by what stands around the list, categories
#: and names of processes.
_EVENTS = (
    _maker(
        rb'"viztracer_metadata"|\ncat: fee\n',
        "viztracer",
        "it holds Python calls of the host, and nothing of a device",
    ),
    _maker(rb"\ncat: py-spy\n", "py-spy", _STACKS),
    _maker(rb"\ncat: (POSIX|STDIO|dftracer)\n", "DFTracer", _FILE_EVENTS),
    _maker(
        rb"\ncat: ([\w.,-]+,)?(devtools\.timeline|blink|toplevel|v8|disabled-by-default)",
        "Chrome",
        "it holds what a browser did",
    ),
    _maker(
        rb"\nprocess: (CANN|Ascend Hardware)\n",
        "Ascend's profiler (msprof)",
        "its categories are not known here",
    ),
    _maker(rb'"feedline"', "feedline itself", "pass the run folder to feedline report"),
    _maker(
        rb"\ncat: (kernel_dispatch|hip_runtime_api|hsa_api)\n",
        "rocprofv3",
        "its categories are not known here",
    ),
)


def maker_of_bytes(head: bytes) -> _Maker | None:
    """Tell who wrote a file that begins so and is no list of events; None: unknown."""
    head = head[:_LOOKED_AT]
    known = next((maker for maker in (*_BINARY, *_JSON) if maker.found.search(head)), None)
    return known or (
        _PERFETTO if _CONTROL.search(head) and _packets(head) >= _MIN_PACKETS else None
    )


def maker_of_lines(head: bytes) -> _Maker | None:
    """Tell who wrote a list that begins so and has a line for each event, and no commas.

    None: it has commas.
    """
    return _LINES_OF_DFTRACER if _LINES_OF_DFTRACER.found.search(head[:_LOOKED_AT]) else None


def _packets(head: bytes) -> int:
    """Return how many messages of field 1 a text begins with, up to _MIN_PACKETS.

    Perfetto's protobuf is nothing but such packets.
    """
    packets = at = 0
    while packets < _MIN_PACKETS and head[at : at + 1] == b"\x0a":
        size, shift, at = 0, 0, at + 1
        while at < len(head) and shift < 35:
            size, shift, at = size | (head[at] & 0x7F) << shift, shift + 7, at + 1
            if head[at - 1] < 0x80:
                break
        at += size
        packets += at <= len(head)
    return packets


def maker_of_events(
    around: bytes, categories: Iterable[str], processes: Iterable[str]
) -> _Maker | None:
    """Tell who wrote a list of events none of which is known.

    Args:
        around: the text before and after the list.
        categories: of its events.
        processes: their names.
    """
    text = (
        around
        + b"\n"
        + "\n".join(
            [
                *(f"cat: {name}" for name in categories),
                *(f"process: {name}" for name in processes),
                "",
            ]
        ).encode()
    )
    return next((maker for maker in _EVENTS if maker.found.search(text)), None)


def refusal_of(path: str, maker: _Maker) -> str:
    """Say what to tell of a file of this maker."""
    return f"{path} was written by {maker.wrote}: {maker.holds}. {READ}"
