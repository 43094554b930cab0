"""Garbage collections of Python in the training's thread, by the stage that they lie in.

They run inside other stages, so they are a part of these and none of their own.
"""

from collections.abc import Mapping

import numpy as np

from feedline.analysis.intervals import FloatArray, IntArray, Pieces, holds
from feedline.analysis.measure.boundaries import Boundaries
from feedline.analysis.measure.stages import STAGE_OF_RECORD
from feedline.analysis.measure.step_model import GarbageCollection
from feedline.profiler.events import Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

#: What a late rank is blamed for that collects while the others wait.
COLLECTING = "garbage collection"
_OTHER, _LOSS = "other", "loss"
#: Stage of a loader's work in the main thread -> the part of it that a collection is counted in.
_MAKING = {"samples": "dataset"}


def collecting(
    main: Process, pieces: Pieces, spans: Records, boundaries: Boundaries
) -> dict[str, IntArray]:
    """Return stage -> int64 [steps], ns: collections in each step.

    Args:
        pieces: of the main thread's time, by the span that owns it; below 0: the loss.
        spans: those.
    """
    records, step = _of_steps(main, boundaries)
    if not len(records):
        return {}
    piece = np.searchsorted(pieces.start, records["start"], "right") - 1
    inside = (piece >= 0) & (records["start"] < np.append(pieces.end, 0)[piece])
    lies_in = np.array(
        [
            _stage_of(spans, int(pieces.owner[at]), main.names) if known else _OTHER
            for at, known in zip(piece.tolist(), inside.tolist())
        ]
    )
    return {
        str(name): np.bincount(
            step[lies_in == name], records["wall"][lies_in == name], len(boundaries.start)
        ).astype(np.int64)
        for name in np.unique(lies_in)
    }


def _stage_of(spans: Records, owner: int, names: Mapping[int, str]) -> str:
    """Return the stage of a piece of the main thread's time, as steps have it."""
    if owner < 0:
        return _LOSS
    stage = Stage(int(spans["stage"][owner]))
    if stage is Stage.USER:
        return names.get(int(spans["source"][owner]), "stage")
    return STAGE_OF_RECORD[stage]


def _of_steps(main: Process, boundaries: Boundaries) -> tuple[Records, IntArray]:
    """Return the collections of the training's thread in steps, and the step of each, int64 [n]."""
    records = main.view(Stage.GARBAGE)
    records = records[records["thread"] == 0]
    step = boundaries.step_of(records["start"])
    counts = (
        (step >= 0) & (records["collections"] > 0) & ~holds(boundaries.evaluation, records["start"])
    )
    return records[counts], step[counts]


def collection(
    main: Process,
    boundaries: Boundaries,
    first: int,
    collecting_ns: Mapping[str, IntArray],
    stages_ns: Mapping[str, FloatArray],
    stages_s: Mapping[str, float],
) -> GarbageCollection | None:
    """Return what collections take of the mean step; None: nothing was recorded of them.

    Args:
        first: steps before it do not count.
        collecting_ns: as ``collecting`` returns it.
        stages_ns: stage -> float64 [steps], ns.
        stages_s: the mean step, seconds.
    """
    records, step = _of_steps(main, boundaries)
    records, step = records[step >= first], step[step >= first]
    if not len(records):
        return None
    stages = dict[str, float]()
    for name, ns in collecting_ns.items():
        stage = _MAKING.get(name, name)
        whole = float(stages_ns[stage][first:].sum()) if stage in stages_ns else 0.0
        part = min(float(ns[first:].sum()) / whole, 1.0) if whole else 0.0
        if part and stages_s.get(stage):
            stages[stage] = stages.get(stage, 0.0) + part * stages_s[stage]
    long = records["collections"] == 1
    called = records["called"] == 1
    whole_ns = float(records["wall"].sum())
    return GarbageCollection(
        s=sum(stages.values()),
        stages=stages,
        steps_share=len(np.unique(step[long])) / max(len(boundaries.start) - first, 1),
        longest_s=float(records["wall"].max(where=long, initial=0)) / 1e9,
        full_share=float(records["wall"][records["generation"] >= _OLDEST].sum()) / whole_ns,
        called_share=float(records["wall"][called].sum()) / whole_ns,
        called_at=_most(records[called], main.names),
        frozen=_frozen(main),
        every_steps=_every(step[long]),
    )


def _every(steps: IntArray) -> int | None:
    """Return the steps from each of these to the next; None: the distance varies, or is not known.

    A share of the steps, of which some are left out, would be off by those.
    """
    gaps = np.diff(np.unique(steps))
    return int(gaps[0]) if len(gaps) > 1 and (gaps == gaps[0]).all() else None


def _frozen(main: Process) -> int | None:
    """Return how many objects gc.freeze has set aside; None: not known, as of a run that was cut."""
    ends = main.view(Stage.GARBAGE)
    ends = ends[ends["collections"] == 0]
    return int(ends["collected"][-1]) if len(ends) else None


def long_collections(main: Process) -> IntArray:
    """Return the collections of a millisecond or more in the training's thread, int64 [n, 2], ns."""
    records = main.view(Stage.GARBAGE)
    records = records[(records["thread"] == 0) & (records["collections"] == 1)]
    spans = np.stack([records["start"], records["start"] + records["wall"]], 1)
    return np.asarray(spans[np.argsort(spans[:, 0], kind="stable")])


_OLDEST = 2  # the generation that a full collection looks through


def _most(records: Records, names: Mapping[int, str]) -> str:
    """Return the line that takes most of these collections; empty: it is not known."""
    took = np.bincount(records["source"], records["wall"])
    return names.get(int(took.argmax()), "") if len(took) else ""
