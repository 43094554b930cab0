"""Lines of the program's source, read when a report is made and never kept."""

import os
from dataclasses import dataclass, field

_LARGEST_BYTES = 4_000_000


@dataclass
class SourceLines:
    """Reads lines of files that have not changed since a run began.

    Attributes:
        begun_s: when it began, seconds since 1970; None: nothing is read.
    """

    begun_s: float | None = None
    _files: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, file: str, line: int) -> str:
        """Return a line, without the blanks around it; empty.

        The file is not there, is masked, or may have changed.
        """
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        if self.begun_s is None or not file.endswith(".py"):
            return []
        try:
            about = os.stat(file)
            if about.st_mtime > self.begun_s or about.st_size > _LARGEST_BYTES:
                return []
            with open(file, encoding="utf-8", errors="replace") as source:
                return source.read().splitlines()
        except (OSError, ValueError):
            return []
