"""Lines of the program's source, read when a report is made and never kept."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST_BYTES = 4_000_000
_PARENTS = 3  # of a run folder: it is usually below the folder that the program was started in


@dataclass
class SourceLines:
    """Reads lines of files that have not changed since a run began.

    Attributes:
        begun_s: when it began, seconds since 1970; None: nothing is read.
        folders: in which files are looked for, beside the working directory.
    """

    begun_s: float | None = None
    folders: Sequence[Path] = ()
    _files: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, begun_s: float | None, run: Path) -> "SourceLines":
        """Return one for a run that began then, in this folder."""
        return cls(begun_s, list(run.absolute().parents)[:_PARENTS])

    def __call__(self, file: str, line: int, function: str = "") -> str:
        """Return a line, without the blanks around it; empty.

        The file is not there, is masked, or may have changed.

        Args:
            function: that the line is in: a file without it is another one of the same name.
        """
        lines = self.whole(file, function)
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def whole(self, file: str, function: str = "") -> list[str]:
        """Return all lines of a file; Args and what is not read as above."""
        key = f"{file}:{function}"
        if key not in self._files:
            self._files[key] = self._found(file, function)
        return self._files[key]

    def _found(self, file: str, function: str) -> list[str]:
        named = function.isidentifier()
        for folder in (Path(), *self.folders):
            lines = self._read(folder / file)
            if lines and (not named or any(f"def {function}" in line for line in lines)):
                return lines
        return []

    def _read(self, file: Path) -> list[str]:
        if self.begun_s is None or file.suffix != ".py":
            return []
        try:
            about = os.stat(file)
            if about.st_mtime > self.begun_s or about.st_size > _LARGEST_BYTES:
                return []
            return file.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError):
            return []
