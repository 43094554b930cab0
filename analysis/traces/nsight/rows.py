"""Events of a whole file before they are parted by process: one table, names held once."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.columns import Kind
from feedline.analysis.traces.nsight.database import TIMES, Database, Field

ROW_DTYPE = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("correlation", "<i8"),  # -1: none
        ("nbytes", "<i8"),  # -1: unknown
        ("process", "<i8"),  # globalPid
        ("place", "<i8"),  # globalTid on the host, stream on a device
        ("device", "<i4"),  # -1: the host
        ("context", "<i4"),
        ("name", "<i4"),
        ("shape", "<i4"),
        ("kind", "u1"),
    ]
)
Rows = npt.NDArray[np.void]

START, END = Field(("start",)), Field(("end",), -1)


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)

    def of_strings(self, database: Database, ids: IntArray, unnamed: str, clean: dict[str, str] | None = None) -> IntArray:
        """Number of the name for each number of a string in the file.

        Args:
            unnamed: what to call what has no string.
            clean: filled with text -> name; None: the text is the name.
        """
        known, index = np.unique(ids, return_inverse=True)
        texts = database.strings(known.tolist())
        found = [texts.get(one) or unnamed for one in known.tolist()]
        named = [self(text if clean is None else clean.get(text, text)) for text in found]
        return np.array(named, np.int64)[index.reshape(-1)] if len(known) else np.zeros(0, np.int64)


def rows(kind: Kind, columns: dict[str, IntArray]) -> Rows:
    """A table of one kind. Columns of ROW_DTYPE that are missing are "none"; an end before its start becomes the start."""
    count = len(columns["start"])
    made = np.zeros(count, ROW_DTYPE)
    for name, missing in (("correlation", -1), ("nbytes", -1), ("device", -1), ("shape", -1)):
        made[name] = missing
    for name, values in columns.items():
        if name in (ROW_DTYPE.names or ()):
            limit = TIMES if ROW_DTYPE[name].itemsize == 8 else 2**31 - 1
            made[name] = values if name in ("process", "place", "correlation") else np.clip(values, -limit, limit)
    made["end"] = np.maximum(made["end"], made["start"])
    made["kind"] = kind
    return made
