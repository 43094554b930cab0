"""The records of a segment as columns, and what these mean, stage by stage.

All records are alike on disk (events.py), and each stage fills ``cpu``, ``runqueue``, ``nbytes``,
``number`` and ``extra`` with what it has. Readers get them by their meaning: a column that a stage
has under another name has no other.
"""

from functools import cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from feedline.profiler.events import RECORD, RECORD_FIELDS, Stage
from feedline.profiler.store.layout import FIELDS, STAGES

Records = npt.NDArray[np.void]
_KINDS = {"q": "<i8", "H": "<u2", "B": "u1"}  # of struct -> of numpy
RECORD_DTYPE = np.dtype([(name, _KINDS[kind]) for name, kind in RECORD_FIELDS])
assert RECORD_DTYPE.itemsize == RECORD.size
# stages whose wall is a count, a mark, or what more than one stretch took
_NO_SPANS = (
    *(Stage.MARKS, Stage.TRAFFIC, Stage.KERNEL, Stage.TAKEN, Stage.OWN_CODE, Stage.CALLED),
    Stage.SUMS,
)
# columns that totals are kept of, behind the number of records
_SUMMED = ("wall", "cpu", "runqueue", "nbytes", "extra")

#: Stage -> column -> its meaning. Times are in ns. What is not named here is what the column says,
#: and ``number`` a batch key.
_MEANINGS = MappingProxyType(
    {
        Stage.FETCH: {"extra": "samples"},
        Stage.SAMPLE: {"nbytes": "samples", "extra": "stands_for"},
        Stage.DECODE: {"extra": "pixels"},
        Stage.AUGMENT: {"extra": "pixels"},
        Stage.TRAFFIC: {
            "wall": "major_faults",
            "cpu": "disk_bytes",
            "runqueue": "process_cpu",
            "nbytes": "read_bytes",
            "extra": "reads",
        },
        Stage.READ: {"extra": "unpacked"},
        Stage.START: {"extra": "pid"},
        Stage.BATCH: {"cpu": "tensors", "runqueue": "batches", "extra": "samples"},
        Stage.KERNEL: {"wall": "minor_faults", "cpu": "system_cpu"},
        Stage.NEXT: {"extra": "samples"},
        Stage.EPOCH: {"number": "epoch", "extra": "workers"},
        Stage.ARRIVE: {"extra": "worker"},
        Stage.MADE: {
            "cpu": "working",
            "runqueue": "copying",
            "number": "calls",
            "extra": "stretch",
        },
        Stage.LOOKED: {"extra": "calls"},
        Stage.OWN_CODE: {"runqueue": "looking", "extra": "looks"},
        Stage.CALLED: {"cpu": "outer"},
        Stage.COMPILE: {"extra": "graph"},
        Stage.GPU: {"number": "host_start", "extra": "of_stage"},
        Stage.PROFILED: {"extra": "steps"},
        Stage.FLOP: {"nbytes": "forward_flop", "extra": "backward_flop", "number": "arithmetic"},
        Stage.GRADIENT: {
            "cpu": "parts",
            "runqueue": "ranks",
            "nbytes": "part_samples",
            "number": "norms_sq",
            "extra": "updates",
        },
        Stage.VALUE: {"nbytes": "samples", "number": "value", "extra": "updates"},
        Stage.REST: {"cpu": "cost", "extra": "steps"},
        Stage.TAKEN: {"wall": "batches", "extra": "samples"},
        Stage.BEGUN: {
            "cpu": "updates_before",
            "runqueue": "samples_before",
            "nbytes": "parameters",
            "number": "optimizer",
            "extra": "first_optimizer",
        },
        Stage.LOOK: {"number": "pid", "extra": "stands_for"},
        Stage.KEPT: {"nbytes": "graphs", "number": "updates", "extra": "alive"},
        Stage.GRADIENTS: {"extra": "unused_elements"},
        Stage.DROPPED: {
            "runqueue": "of_all",
            "nbytes": "forwards",
            "number": "updates",
            "extra": "dropped",
        },
        Stage.CONTENTS: {
            "cpu": "padded",
            "nbytes": "values",
            "number": "updates",
            "extra": "needless",
        },
        Stage.GARBAGE: {
            "cpu": "collected",
            "nbytes": "called",
            "number": "generation",
            "extra": "collections",
        },
        Stage.COLLECTIVE: {
            "cpu": "group",
            "runqueue": "dtype",
            "number": "sequence",
            "extra": "until_gpu",
        },
        Stage.GROUP: {
            "cpu": "backend",
            "nbytes": "ranks",
            "number": "first_rank",
            "extra": "apart",
        },
        Stage.CLOCK: {"number": "offset", "extra": "round_trip"},
    }
)


def sums_of(records: Records) -> npt.NDArray[np.int64]:
    """Sum records by stage, int64 [64, 8] as in a segment's header.

    Unmeasured times count as 0.
    """
    sums = np.zeros((STAGES, FIELDS), np.int64)
    for stage in np.unique(records["stage"]).tolist():
        own = records[records["stage"] == stage]
        sums[stage, 0] = len(own)
        for column, name in enumerate(_SUMMED, 1):
            values = own[name]
            sums[stage, column] = (values if column > 3 else np.maximum(values, 0)).sum()
    return sums


def last_sign(records: Records) -> int:
    """Return when the last of these records began or ended, ns; 0: there are none."""
    wall = np.where(np.isin(records["stage"], _NO_SPANS), 0, np.maximum(records["wall"], 0))
    return int((records["start"] + wall).max(initial=0))


def meaning(stage: Stage, column: str) -> str:
    """Return what a stage calls a column."""
    return _MEANINGS.get(stage, {}).get(column, column)


@cache
def _dtype_of(stage: Stage) -> "np.dtype[np.void]":
    """Return RECORD_DTYPE with a stage's own names."""
    own = _MEANINGS.get(stage, {})
    names = [own.get(name, name) for name in RECORD_DTYPE.names or ()]
    return np.dtype([(name, RECORD_DTYPE[at]) for at, name in enumerate(names)])


def view(records: Records, stage: Stage) -> Records:
    """View the records, all of this stage, with its column names; nothing is copied."""
    return records.view(_dtype_of(stage))


def summed(records: Records, stage: Stage) -> dict[str, int]:
    """Return the sums of a stage's columns, and ``records``, their number.

    Unmeasured values count as 0.

    Args:
        records: all of one stage, by its own names.
        stage: theirs.
    """
    return {
        "records": len(records),
        **{name: int(np.maximum(records[name], 0).sum()) for name in _summed(stage)},
    }


def totals(stage: Stage, counts: npt.NDArray[np.int64]) -> dict[str, int]:
    """Return such sums, from those in the store.

    Args:
        stage: whose sums they are.
        counts: int64 [6 or more]: the number of records, and sums in the order of _SUMMED.
    """
    return dict(zip(("records", *_summed(stage)), counts.tolist(), strict=False))


def _summed(stage: Stage) -> list[str]:
    own = _MEANINGS.get(stage, {})
    return [own.get(name, name) for name in _SUMMED]
