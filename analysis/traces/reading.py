"""A file of whatever tool."""

from pathlib import Path

from feedline.analysis.traces.columns import Trace
from feedline.analysis.traces.kineto.limits import DEFAULT, Limits
from feedline.analysis.traces.kineto.read import read_kineto
from feedline.analysis.traces.nsight.read import read_nsight

_SQLITE = b"SQLite format 3\0"


def read_trace(path: str, limits: Limits = DEFAULT) -> list[Trace]:
    """What a file holds, whoever made it: it is looked into, its name does not matter.

    Raises:
        TraceDamaged: see ``read_kineto`` and ``read_nsight``.
    """
    if "://" not in path and Path(path).is_file():
        with open(path, "rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE or path.endswith((".sqlite", ".nsys-rep", ".qdrep")):
                return read_nsight(path, limits)
    return [read_kineto(path, limits, strangers=False)]
