"""What a step moves from place to place: through a worker's queue, to pinned memory, to a device."""

import numpy as np

from feedline.analysis.measure.model import Moved
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.segment_reader import Process

_STAGES = {"transport": Stage.TRANSPORT, "pin": Stage.PIN, "copy": Stage.COPY}


def of(main: Process, steps: Steps, first: int) -> dict[str, Moved]:
    """Return means per step of each stage, of the recorded steps that count.

    A stage that did not occur is left out.

    Args:
        first: index of the first step that counts.
    """
    begin, end = steps.start[first:], steps.boundaries.end[first:]
    means = {}
    for name, stage in _STAGES.items():
        records = main.of(stage)
        at = np.searchsorted(begin, records["start"], "right") - 1
        records = records[(at >= 0) & (records["start"] < np.append(end, 0)[at])]
        if len(records):
            nbytes, measured = float(records["nbytes"].sum()), records["cpu"][records["cpu"] >= 0]
            pageable = float(records["nbytes"][records["flags"] & Flag.PINNED == 0].sum())
            means[name] = Moved(
                times=len(records) / len(begin),
                nbytes=nbytes / len(begin),
                cpu_s=float(measured.sum()) / len(begin) / 1e9 if len(measured) else None,
                pageable=pageable / nbytes if nbytes else 0.0,
            )
    return means
