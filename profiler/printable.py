"""Makes text from outside safe to show.

It is names of files, kernels and stages, messages of libraries, contents of run folders and traces.
Terminal and HTML pass every string through here where it leaves the program; JSON and traces keep
the true strings.
"""

import dataclasses
import enum
import sys
import unicodedata
from contextlib import suppress
from typing import Any, TextIO, TypeVar, cast

from feedline.profiler.errors import FeedlineError
from feedline.profiler.message import reworded

# combining marks on one letter; living scripts need up to 5, a pile of them covers the lines around
# it
_MAX_MARKS = 8
_ZERO_WIDTH_JOINER = "\u200d"
#: Characters without a shape that Unicode lists as letters, marks or unassigned: grapheme joiner,
#: fillers, vowels that are not drawn.
_SHAPELESS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u3164\uffa0")
# controls, formats (bidi, zero width, tags), surrogates, line and paragraph separators
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_PICTOGRAPHS = ((0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF))
_SELECTORS = ((0x180B, 0x180D), (0x180F, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))

_T = TypeVar("_T")


def printable(text: object, lines: bool = False) -> str:
    r"""Return the text with control and invisible characters as escapes: ``\x1b``, ``\u202e``, ``\udcff``.

    Letters of all scripts, their marks and emoji stay as they are, so a harmless text comes back unchanged; a text that was made printable
    does, too.

    Args:
        text: a string, or what ``str`` makes one of.
        lines: keep line feeds and tabs. Without it the result is one line, so that no name can begin a line of its own.
    """
    text = str(text)
    if (text.isascii() and text.isprintable()) or (lines and text == "\n"):
        return text
    shown: list[str] = []
    # marks since the last letter; what stood before; whether a letter that has no mark yet did
    marks, pictograph, bare = (0, False, False)
    for at, c in enumerate(text):
        kind = unicodedata.category(c)
        mark = kind in ("Mn", "Me")
        marks = marks + 1 if mark else 0
        if _within(c, _SELECTORS):
            keep = bare
        elif c == _ZERO_WIDTH_JOINER:
            keep = pictograph and _within(text[at + 1 : at + 2], _PICTOGRAPHS)
        else:
            keep = (lines and c in "\n\t") or not (_hidden(c, kind) or marks > _MAX_MARKS)
        shown.append(c if keep else c.encode("unicode_escape").decode("ascii"))
        pictograph = keep and (_within(c, _PICTOGRAPHS) or (pictograph and mark))
        bare = keep and not mark and c != _ZERO_WIDTH_JOINER
    return "".join(shown)


def _within(c: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return bool(c) and any(first <= ord(c) <= last for first, last in ranges)


def _hidden(c: str, kind: str) -> bool:
    if kind == "Cn":  # unassigned, noncharacters among them; emoji are newer than some Python
        return not _within(c, _PICTOGRAPHS)
    return kind in _HIDDEN or c in _SHAPELESS


def printable_in(value: _T) -> _T:
    """Return a copy in which every string is printable and one line.

    It copies dataclasses, dicts, lists and tuples; harmless values are not copied. Two keys of a
    dict that become the same are kept apart by a number.
    """
    return cast(_T, _printable_in(value))


def _printable_in(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return (
            value if value.isascii() and value.isprintable() else reworded(value, printable(value))
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.init
        }
        changed = {
            name: shown for name, old in fields.items() if (shown := _printable_in(old)) is not old
        }
        return dataclasses.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        return _in_dict(value)
    if isinstance(value, (list, tuple)):
        shown = [_printable_in(item) for item in value]
        if all(new is old for new, old in zip(shown, value)):
            return value
        return type(value)(*shown) if hasattr(value, "_fields") else type(value)(shown)
    return value


def _in_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    shown: dict[Any, Any] = {}
    for key, item in value.items():
        new, number = _printable_in(key), 1
        while new in shown or (new is not key and new in value):
            number += 1
            new = f"{_printable_in(key)} ({number})"
        shown[new] = _printable_in(item)
    same = all(new is old and shown[new] is value[old] for new, old in zip(shown, value))
    return value if same else shown


def say(text: object, lines: bool = False, to: TextIO | None = None) -> None:
    """Print ``feedline: TEXT`` on standard error; do nothing if it is closed.

    Args:
        text: an error's own lines, beyond its message, are kept.
        lines: keep line feeds in the text: it is ours.
        to: another file.
    """
    message, *more = text.args if isinstance(text, FeedlineError) and text.args else (text,)
    file = sys.stderr if to is None else to
    shown = "\n".join(
        [f"feedline: {printable(message, lines)}", *(printable(line, lines=True) for line in more)]
    )
    with suppress(OSError, ValueError, AttributeError):  # closed, or no standard error at all
        encoding = getattr(file, "encoding", None) or "utf-8"
        print(shown.encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)


def say_in_training(text: object, lines: bool = False) -> None:
    """Print on the standard error that the process started with.

    The program may have replaced or closed it.

    Args:
        text: as for ``say``.
        lines: keep line feeds in the text: it is ours.
    """
    with suppress(Exception):
        say(text, lines, sys.__stderr__)
