"""Validates records, so that analysis can calculate with them: times and sums fit into 64 bits, whatever a file contains."""

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.files.checking import MOST_NS, MOST_RANKS, checked
from feedline.profiler.store.shapes import Main, Worker

_MOST_WALL = 1 << 53  # ns: 104 days
_MOST_SUM = 1 << 62
_MOST_MEMBERS = 4_000_000  # ranks of all groups together
_MOST_OPTIMIZERS = 1 << 20
_FREE_FROM = 4  # columns of totals from here on, nbytes and extra, may be below 0
_CLOCKS = ("cpu", "runqueue", "nbytes", "extra")  # what they hold depends on the stage
_KNOWN = np.array([stage in set(Stage) for stage in range(256)])
_SIGNED = (Stage.GROUP, Stage.ARRIVE)  # extra may be below 0
_ANY_NUMBER = (Stage.VALUE, Stage.GRADIENT)  # bits of floats


def header(data: Any) -> dict[str, object]:
    """The header of a segment.

    Raises:
        ValueError: it is not one.
    """
    checked(data, dict[str, object])
    checked(data, Worker if data.get("role") == "worker" else Main)
    if "stopped" in data:
        checked(data["stopped"], str)
    return dict(data)


def records(found: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Records of known stages; a newer feedline may write others.

    Raises:
        ValueError: a value is none that a recording writes; the text names column and row.
    """
    found = found[_KNOWN[found["stage"]]]
    stage = found["stage"]
    _within(found, "start", 0, MOST_NS - _MOST_WALL)
    _within(found, "wall", np.where(stage == Stage.START, -_MOST_WALL, UNMEASURED), _MOST_WALL)
    for name in _CLOCKS:
        low = np.where(np.isin(stage, _SIGNED), -_MOST_SUM, UNMEASURED) if name == "extra" else UNMEASURED
        _within(found, name, low, _MOST_SUM)
    for name in ("wall", *_CLOCKS):
        if float(np.abs(found[name].astype(float)).sum()) >= _MOST_SUM:
            raise ValueError(f"column {name}: its sum does not fit into 64 bits")
    _of_stages(found)
    return found


def _of_stages(found: npt.NDArray[np.void]) -> None:
    """What only some stages have."""
    _within(found[found["stage"] == Stage.CLOCK], "extra", 0, MOST_NS)
    numbers = found[~np.isin(found["stage"], _ANY_NUMBER)]
    _within(numbers, "number", -MOST_NS, MOST_NS)
    begun = found[found["stage"] == Stage.BEGUN]
    _within(begun, "number", 0, _MOST_OPTIMIZERS)
    _within(begun, "extra", 0, _MOST_OPTIMIZERS)
    groups = found[found["stage"] == Stage.GROUP]
    _within(groups, "number", 0, MOST_RANKS)
    _within(groups, "extra", -MOST_RANKS, MOST_RANKS)
    _within(groups, "nbytes", 0, MOST_RANKS)
    last = groups["number"] + np.maximum(groups["nbytes"] - 1, 0) * groups["extra"]
    if len(last) and (last.min() < 0 or last.max() >= MOST_RANKS or groups["nbytes"].sum() > _MOST_MEMBERS):
        raise ValueError("columns number, nbytes, extra: a record of GROUP names ranks that no launch has")
    marks = found[found["stage"] == Stage.GPU]
    _within(marks, "extra", 1, len(_KNOWN))
    unknown = np.flatnonzero(~_KNOWN[marks["extra"]])
    if len(unknown):
        raise ValueError(f"column extra: {int(marks['extra'][unknown[0]])} is not the number of a stage")


def _within(found: npt.NDArray[np.void], name: str, low: Any, high: int) -> None:
    values = found[name]
    outside = np.flatnonzero((values < low) | (values >= high))
    if len(outside):
        row = int(outside[0])
        raise ValueError(
            f"column {name}: {int(values[row])} in a record of {Stage(int(found['stage'][row])).name} (the {row + 1:,}th of its kind)"
        )


def sums(found: npt.NDArray[np.int64], what: str) -> npt.NDArray[np.int64]:
    """Sums of records, or counts of a histogram.

    Raises:
        ValueError: one is below 0, or too large to be calculated with.
    """
    signed = found.ndim == 2 and what == "totals"
    low = np.where(np.arange(found.shape[1]) >= _FREE_FROM, -_MOST_SUM, 0) if signed else 0
    rows, columns = np.nonzero((found < low) | (found >= _MOST_SUM))
    if len(rows):
        raise ValueError(f"{what}: {int(found[rows[0], columns[0]])} in row {rows[0]}")
    return found


def totals(found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Totals of a process; the first number says which windows were kept.

    Raises:
        ValueError: they are not such sums.
    """
    mask = int(found[0, 0])
    if mask & (mask + 1) or not 0 <= mask <= 65_535:
        raise ValueError(f"totals: one window in {mask + 1} was kept, which is not a power of two")
    return sums(found, "totals")
