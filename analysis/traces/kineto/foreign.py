"""Lists of events without categories, as rocprof and XProf (JAX, TensorFlow) write them: what each is, its process and thread say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from feedline.analysis.traces.columns import Kind, Track
from feedline.analysis.traces.kineto.rows import Rows

#: rocprof's names of processes (ROCm/rocprofiler, bin/tblextr.py), from 2020 on with a number before them.
_ROCPROF = re.compile(r"^(?:\d+ )?(?:(CPU (?:HIP|HSA|KFD) API)|(COPY)|(Markers and Ranges)|GPU(\d+))$")
#: XProf's (openxla/xprof, convert/trace_viewer), one a device, and of its threads those that are streams.
_XPROF = re.compile(r"^/(?:job:.*/)?(?:(host):\w+|device:(?:GPU|TPU|CUSTOM):(\d+))")
_STREAM = re.compile(r"^Stream #(\d+)")
_XLA_OPERATIONS = "XLA Ops"
_COPIES = re.compile(r"^(Memcpy|hcMemcpy|Copy)")
_SETS = re.compile(r"^(Memset|Fill)")
_BARRIER = "<barrier packet>"  # of the queue: it waits, and computes nothing
_PYTHON = "$"  # before the name of a Python function


def maker_of(processes: Mapping[str, str]) -> str | None:
    """``rocprof`` or ``xprof``, by the names of its processes; None: neither."""
    for maker, pattern in (("rocprof", _ROCPROF), ("xprof", _XPROF)):
        if any(pattern.match(name) for name in processes.values()):
            return maker
    return None


def adapt(rows: Rows, tracks: list[Track], names: Sequence[str], processes: Mapping[str, str]) -> None:
    """Give the events of a foreign file their kinds, and put those of devices on tracks of devices, in place.

    Args:
        names: of events.
        processes: pid -> name.
    """
    streams = {track.process for track in tracks if _STREAM.match(track.name)}
    known = [_place(track, processes.get(track.process, ""), track.process in streams) for track in tracks]
    tracks[:] = [track for track, _ in known]
    rows["kind"] = np.array([kind for _, kind in known], np.uint8)[rows["track"]]
    kernels, annotations = (rows["kind"] == kind for kind in (Kind.KERNEL, Kind.ANNOTATION))
    for chosen, told, kind in (
        (kernels, [name == _BARRIER for name in names], Kind.SYNC),
        (kernels, [bool(_SETS.match(name)) for name in names], Kind.SET),
        (kernels, [bool(_COPIES.match(name)) for name in names], Kind.COPY),
        (annotations, [name.startswith(_PYTHON) for name in names], Kind.PYTHON),
    ):
        rows["kind"][chosen & np.array(told, bool)[rows["name"]]] = kind


def _place(track: Track, process: str, has_streams: bool) -> tuple[Track, Kind]:
    """Where a track's events are, and what they are unless their names say more."""
    if rocprof := _ROCPROF.match(process):
        calls, copies, ranges, gpu = rocprof.groups()
        if calls or ranges:
            return track, Kind.RUNTIME if calls else Kind.ANNOTATION
        return replace(track, device=int(gpu or 0), thread="copy" if copies else track.thread), Kind.COPY if copies else Kind.KERNEL
    if xprof := _XPROF.match(process):
        host, device = xprof.groups()
        if host:
            return track, Kind.ANNOTATION
        stream = _STREAM.match(track.name)
        works = bool(stream) if has_streams else track.name == _XLA_OPERATIONS
        placed = replace(track, device=int(device), thread=stream[1] if stream else track.thread)
        return placed, Kind.KERNEL if works else Kind.DEVICE_ANNOTATION
    return track, Kind.OTHER
