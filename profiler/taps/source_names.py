"""Names of the program's functions and lines, as a fix names them.

The line that makes a DataLoader is among them.
"""

import functools
import os
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

from feedline.profiler import masks
from feedline.profiler.fail_open import fail_open

#: Their frames say nothing about the caller. Lightning's Fabric, which is also a part of another
#: package, wraps ``DataLoader.__init__``.
_PASSED_THROUGH = ("torch", "torchdata", "lightning_fabric", masks.PYTHON, masks.FEEDLINE)
_FABRIC = "site-packages/lightning/fabric/"


class CallSites:
    """Where each loader was made, for as long as it lives."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, dict[str, object]] = weakref.WeakKeyDictionary()

    def watched(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return what takes the place of a loader's ``__init__``."""

        @functools.wraps(original)
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            with fail_open:  # its line stays unknown
                self._of[loader] = self._line_to_change(loader, call_site(sys._getframe(1)))

        return __init__

    def of(self, loader: Any) -> dict[str, object]:
        """Return its ``call_site``; empty where the loader was made before feedline could see it."""
        try:
            return self._of.get(loader, {})
        except TypeError:  # a subclass that cannot be hashed
            return {}

    def _line_to_change(self, loader: Any, made: dict[str, object]) -> dict[str, object]:
        """Return the program's own line, where a library rebuilds its loader.

        Lightning and accelerate do, with a sampler of their own.
        """
        if "made_by" not in made:
            return made
        before = [known for other, known in self._of.items() if other.dataset is loader.dataset]
        return before[0] if before and all(known == before[0] for known in before) else made


def call_site(frame: Any) -> dict[str, object]:
    """Return which line of the program led to a call.

    Args:
        frame: of the caller.

    Returns:
        ``made_at``: ``train.py:31``; left out where the file's name has to be masked. ``made_by``:
        the installed library that the line calls, such as ``transformers``; left out where it makes
        the call itself.
    """
    origin: dict[str, object] = {}
    while frame is not None:
        file = frame.f_code.co_filename
        library = masks.library(file)
        if not library:
            path = masks.source(file)
            named = not os.path.basename(path).startswith(masks.MASK)
            return {"made_at": f"{path}:{frame.f_lineno}", **origin} if named else origin
        if library not in _PASSED_THROUGH and _FABRIC not in file:
            origin["made_by"] = library
        frame = frame.f_back
    return origin


NAME_BYTES = 56  # room in a record


_UNNAMED = {
    "<lambda>": "a lambda",
    "<genexpr>": "a generator",
    **dict.fromkeys(("<listcomp>", "<dictcomp>", "<setcomp>"), "a comprehension"),
}


@lru_cache(maxsize=1000)
def _place(file: str) -> str:
    return masks.source(file)


_NAMED_BYTES = 8  # of a function's name, at least


def name_of(code: CodeType, lines: tuple[int, int] | None = None, around: bool = False) -> str:
    """Name a function, ``get_batch (train.py:116)``, or lines of it.

    Lines are ``lines 120 to 131 (train.py)``.

    Args:
        code: of the function.
        lines: the first and the last.
        around: the code from the first line around the loop to the second.
    """
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    name = _UNNAMED.get(name, name)
    place = _place(code.co_filename)
    if lines is None:
        place = f"{place}:{code.co_firstlineno}"
    elif around:
        name = (
            f"the loop around line {lines[0]}"
            if lines[0] == lines[1]
            else f"lines {lines[0]} to {lines[1]} of the next pass"
        )
    else:
        name = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]} to {lines[1]}"
    if len(f"{name} ({place})".encode()) > NAME_BYTES:
        library, file = masks.library(code.co_filename), place.rpartition("/")[2]
        spare = NAME_BYTES - len(f"{name} (…/{file})".encode())
        place = f"{library[: max(spare, 2)]}…/{file}" if library else file
    room = NAME_BYTES - len(" ()")
    if lines is None:
        file, _, line = place.rpartition(":")
        place = f"{_cut(file, room - _NAMED_BYTES - len(f':{line}'))}:{line}"
        name = _cut(name, room - len(place.encode()))
    else:  # without its numbers it says nothing
        place = _cut(place, room - len(name))
    return f"{name} ({place})"


def _cut(text: str, size: int) -> str:
    """Shorten a text to ``size`` bytes of UTF-8, with an ellipsis where something is cut off."""
    own = text.encode()
    return (
        text if len(own) <= size else f"{own[: size - len('…'.encode())].decode(errors='ignore')}…"
    )
