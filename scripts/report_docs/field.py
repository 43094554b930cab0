"""One field of the JSON report, in words."""

from typing import NamedTuple


class Field(NamedTuple):
    """One field: its unit ("" for text and structures), its meaning, and when it is null."""

    unit: str
    meaning: str
    null: str = ""

    def text(self) -> str:
        """All three in one line."""
        unit = f" Unit: {self.unit}." if self.unit else ""
        null = f" Null: {self.null}." if self.null else ""
        return f"{self.meaning}.{unit}{null}"
