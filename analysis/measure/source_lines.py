"""Lines of the program's source, read when a report is made and never kept."""

import ast
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from feedline.profiler.masks import MASK
from feedline.profiler.store.sampled_stacks import FileState

_LARGEST_BYTES = 4_000_000
_NUMBER = re.compile(r"^\d+/")  # of files that are masked alike (profiler/stacks/helper.py)


@dataclass
class SourceLines:
    """Reads lines of files that have not changed since a run began.

    Attributes:
        begun_s: when it began, seconds since 1970; None: nothing is read.
        folders: in which files are looked for, beside the working directory.
        states: of files when they ran, as far as they were recorded: others are told by their time.
            Only with it, a file whose folder is masked is looked for by its name.
    """

    begun_s: float | None = None
    folders: Sequence[Path] = ()
    states: Mapping[str, FileState] = field(default_factory=dict)
    _files: dict[str, list[str]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)

    def __call__(self, file: str, line: int, function: str = "") -> str:
        """Return a line, without the blanks around it; empty.

        The file is not there, or may have changed.

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

    def text(self, file: str, function: str = "") -> str:
        """Return all lines of a file as one text; Args and what is not read as above."""
        key = f"{file}:{function}"
        if key not in self._texts:
            self._texts[key] = "\n".join(self.whole(file, function))
        return self._texts[key]

    def _found(self, file: str, function: str) -> list[str]:
        named = function.isidentifier()
        state = self.states.get(file)
        name = file if state is None else file.rpartition(f"{MASK}/")[2]
        names = dict.fromkeys((name, _NUMBER.sub("", name) if name != file else name))
        for path in (folder / one for one in names for folder in (Path(), *self.folders)):
            lines = self._read(path, state)
            if lines and (not named or any(f"def {function}" in line for line in lines)):
                return lines
        return []

    def _read(self, file: Path, state: FileState | None) -> list[str]:
        if self.begun_s is None or file.suffix != ".py":
            return []
        try:
            about = os.stat(file)
            if about.st_mtime > self.begun_s or about.st_size > _LARGEST_BYTES:
                return []
            if state not in (None, FileState(about.st_mtime_ns, about.st_size)):
                return []
            return file.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError):
            return []


@lru_cache(maxsize=256)
def parsed(text: str) -> ast.Module | None:
    """Return a program's text as a tree; None: it is empty, or not this Python's.

    Warnings about it are the program's own.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def with_class(text: str, line: int, function: str) -> str:
    """Return a special method with its class, ``Flight.__init__``; other names as they are.

    Args:
        text: of the file.
        line: a line of the method.
        function: its name, which says nothing without the class.
    """
    if not (function.startswith("__") and function.endswith("__")):
        return function
    tree = parsed(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] if tree else []
    for owner in classes:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                if node.lineno <= line <= (node.end_lineno or node.lineno):
                    return f"{owner.name}.{function}"
    return function


def called_in(text: str, line: int) -> str:
    """Return what the statement of a line calls, ``torch.linalg.svd``.

    It is empty where the statement is more than one call of a function and what its value is given
    to.
    """
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
            if node.lineno == line and isinstance(node.value, ast.Call):
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                name = ast.unparse(node.value.func)
                named = all(part.isidentifier() for part in name.split("."))
                return name if named and len(calls) == 1 else ""
    return ""
