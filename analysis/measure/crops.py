"""Whether samples are cut to their size before the transform that takes most of augmentation."""

import re
from collections.abc import Sequence

import numpy as np

from feedline.analysis.measure.model import Operation
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

#: Transforms that call others. What they take themselves is transforms of the program's own in
#: them, or, if it is little, the calls.
CONTAINERS = frozenset(
    {
        "Compose",
        "Sequential",
        "RandomApply",
        "RandomChoice",
        "RandomOrder",
        "OneOf",
        "SomeOf",
        "ReplayCompose",
    }
)
_CUTS = re.compile(r"crop|resize|maxsize|thumbnail", re.IGNORECASE)
_MOST = 0.5  # of the samples


def cut_first(operations: Sequence[Operation], processes: Sequence[Process]) -> bool | None:
    """Return whether a crop or a resize comes before the transform that takes most.

    None: there is no such transform, or the cut itself takes most.

    Args:
        operations: of making a sample.
        processes: that make samples.
    """
    transforms = [op for op in operations if op.stage == "augment" and op.name not in CONTAINERS]
    heaviest = max(transforms, key=lambda op: op.wall_s, default=None)
    if heaviest is None or _CUTS.search(heaviest.name):
        return None
    before, seen, cuts = 0, 0, 0
    for process in processes:
        made, records = process.of(Stage.SAMPLE)["start"], process.of(Stage.AUGMENT)
        of = np.array([process.names.get(source, "") for source in records["source"].tolist()])
        cut = np.array([_CUTS.search(name) is not None for name in of], bool)
        begun = np.sort(records["start"][cut])
        cuts += len(begun)
        for start in records["start"][of == heaviest.name].tolist() if len(made) else ():
            sample = np.max(made[made <= start], initial=0)
            seen += 1
            before += int(np.any((begun >= sample) & (begun < start)))
    return before > _MOST * seen if seen and cuts else None
