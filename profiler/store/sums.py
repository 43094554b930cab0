"""Sums of records by stage, as a segment keeps them for discarded records."""

import numpy as np
import numpy.typing as npt

STAGES, FIELDS = 64, 8


def sums_of(records: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Sums of records by stage: int64 [64, 8] as in a segment's header; unmeasured times count as 0."""
    found = np.zeros((STAGES, FIELDS), np.int64)
    for stage in np.unique(records["stage"]).tolist():
        own = records[records["stage"] == stage]
        found[stage, 0] = len(own)
        for column, name in enumerate(("wall", "cpu", "runqueue", "nbytes", "extra"), 1):
            values = own[name]
            found[stage, column] = (values if column > 3 else np.maximum(values, 0)).sum()
    return found
