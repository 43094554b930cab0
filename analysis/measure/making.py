"""Functions of the program that make batches in the training's own thread, without a loader.

profiler/taps/own_code timed them in some steps. There, what they took is taken out of the stage
that it lies in: ``other``, or ``loss`` where the program computes its loss between a forward and
the backward after it. The other steps are given the mean of those; their stages still sum.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import Pieces, holds, overlap
from feedline.analysis.measure.boundaries import Boundaries
from feedline.analysis.measure.clues import Making
from feedline.profiler.events import Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

STAGE = "input"
_FEWEST = 4  # steps that are worth a mean


def find_making(main: Process, spans: Records, pieces: Pieces, steps: Boundaries) -> Making | None:
    """Read what making batches took in each step.

    None: unknown, or a loader feeds the steps.

    Args:
        spans: records of the main thread that belong to a stage, by start.
        pieces: of its time, by stage; an owner below 0: the program computes its loss.
        steps: without those that are not to count.
    """
    records = main.view(Stage.MADE)
    records = records[(records["thread"] == 0) & ~_for_evaluation(records, spans, steps)]
    looked = _looked(main.of(Stage.LOOKED), spans, steps)
    step = steps.step_of(records["start"])
    inside = (step >= 0) & looked[step]
    records, step = records[inside], step[inside]
    if steps.training_loaders or not len(records) or looked.sum() < _FEWEST:
        return None
    begin = records["start"]
    end = records["start"] + records["stretch"]
    own = records["wall"] - records["copying"]
    of_loss = pieces.owner < 0
    lost = np.minimum(own, overlap(begin, end, pieces.start[of_loss], pieces.end[of_loss]))
    other = np.clip(
        own - lost, 0, records["stretch"] - overlap(begin, end, pieces.start, pieces.end)
    )
    took = {
        name: np.bincount(step, part, len(looked)).astype(np.int64)
        for name, part in (("loss", lost), ("other", other))
    }
    if not any(part.any() for part in took.values()):
        return None  # the program names the stage itself
    return Making(
        _functions(records, main.names),
        looked,
        took,
        float(records["calls"].sum() / looked.sum()),
        _working_share(records),
    )


def _for_evaluation(records: Records, spans: Records, steps: Boundaries) -> npt.NDArray[np.bool_]:
    """Mark what was made in an evaluation, or directly before one, bool [n]."""
    calls = spans["start"][
        np.isin(spans["stage"], (Stage.FORWARD, Stage.LOSS, Stage.BACKWARD, Stage.OPTIMIZER))
    ]
    ends = np.append(calls, 2**62)[np.searchsorted(calls, records["start"])]
    return holds(steps.evaluation, records["start"]) | holds(steps.evaluation, ends)


def _looked(looks: Records, spans: Records, steps: Boundaries) -> npt.NDArray[np.bool_]:
    """Mark the steps that one or more looks, end to end, cover completely, bool [steps]."""
    looks = np.sort(looks, order="start")
    if not len(looks):
        return np.zeros(len(steps.start), bool)
    ends = looks["start"] + looks["wall"]
    at = np.searchsorted(looks["start"], steps.start)
    begin = np.append(looks["start"], np.iinfo(np.int64).max)[at]
    unseen = np.searchsorted(spans["start"], begin) - np.searchsorted(spans["start"], steps.start)
    return np.asarray((unseen == 0) & (np.append(ends, 0)[at] >= steps.end))


def _functions(records: Records, names: dict[int, str]) -> tuple[str, ...]:
    took: Counter[int] = Counter()
    for source, wall in zip(records["source"].tolist(), records["wall"].tolist()):
        took[source] += wall
    return tuple(names[source] for source, _ in took.most_common() if source in names)


def _working_share(records: Records) -> float:
    return float(records["working"].sum() / max(records["wall"].sum(), 1))
