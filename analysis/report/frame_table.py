"""A pandas frame as a table of columns, each with its name, unit and meaning."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # pandas takes a second of CPU: it is imported when a frame is asked for
    import pandas as pd

#: Kind of a column -> its dtype. An integer that may be missing is "Int64"; "str" is what this
#: pandas has for text.
_DTYPE_OF_KIND = {
    "integer": "int64",
    "number": "float64",
    "bool": "bool",
    "time": "datetime64[ns, UTC]",
    "text": "str",
}
_DOC_WIDTH = 100  # of a docstring
Rows = Mapping[str, Any]  # column -> array [n], of one rank or process


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        kind: of _DTYPE_OF_KIND.
        unit: "" for text, counts and the like.
        missing: when a value is missing (NaN, NaT or NA); empty: never.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    missing: str = ""

    @property
    def dtype(self) -> str:
        """Of the frame's column."""
        return "Int64" if self.kind == "integer" and self.missing else _DTYPE_OF_KIND[self.kind]

    def text(self) -> str:
        """Say unit, meaning and when it is missing, in one line."""
        unit = f" [{self.unit}]" if self.unit else ""
        missing = f". Missing: {self.missing}" if self.missing else ""
        return f"{self.name}{unit}: {self.meaning}{missing}".removesuffix(".") + "."


@dataclass(frozen=True)
class FrameTable:
    """A frame before it has rows.

    Attributes:
        name: of the property of a loaded run.
        rows: what a row is, in sentences.
        columns: in order. A name in angle brackets stands for any number of columns.
    """

    name: str
    rows: str
    columns: tuple[Column, ...]

    @property
    def fixed(self) -> tuple[Column, ...]:
        """The columns that every run has."""
        return tuple(column for column in self.columns if not column.name.startswith("<"))

    def frame(self, parts: Sequence[Rows], more: Sequence[str] = ()) -> "pd.DataFrame":
        """Make the frame of all parts, one below the other.

        Args:
            parts: column -> array or list [n]. A negative integer stands for a missing one in a
                column that may miss values.
            more: columns of numbers after the fixed ones; 0 in a part that lacks one.
        """
        import pandas as pd

        rows = [len(part[self.columns[0].name]) for part in parts]
        columns = {
            column.name: _series(column, [part[column.name] for part in parts])
            for column in self.fixed
        }
        for name in more:
            columns[name] = pd.Series(
                _joined([part.get(name, np.zeros(n)) for part, n in zip(parts, rows, strict=True)]),
                dtype="float64",
            )
        return pd.DataFrame(columns)

    def docstring(self) -> str:
        """Write the docstring for the property of a loaded run."""
        lines = [
            textwrap.fill(
                column.text(), _DOC_WIDTH, subsequent_indent="    ", break_on_hyphens=False
            )
            for column in self.columns
        ]
        return "\n".join(
            [textwrap.fill(self.rows, _DOC_WIDTH, break_on_hyphens=False), "", *lines, ""]
        )

    def markdown(self) -> str:
        """Write a section of docs/api.md."""
        rows = ["| column | type | unit | meaning | missing when |", "|---|---|---|---|---|"]
        rows += [
            f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} | "
            f"{column.missing} |"
            for column in self.columns
        ]
        return f"## {self.name}\n\n{self.rows}\n\n" + "\n".join(rows) + "\n"


def _series(column: Column, values: Sequence[Any]) -> "pd.Series":
    import pandas as pd

    if column.kind == "text":
        return pd.Series([text for part in values for text in part], dtype="str")
    joined = _joined(values)
    if column.kind == "time":
        return pd.Series(pd.to_datetime(joined.astype(np.int64).view("datetime64[ns]"), utc=True))
    if column.dtype == "Int64":
        return pd.Series(joined.astype(np.int64), dtype="Int64").mask(joined < 0)
    return pd.Series(joined, dtype=column.dtype)


def _joined(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate(values) if values else np.zeros(0)
