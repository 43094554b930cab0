"""Self-tests of the hooks for the libraries installed here."""

import importlib
import importlib.util
import os
from typing import NamedTuple

from feedline.profiler.taps.operations import LIBRARIES, attach, untapped
from feedline.profiler.taps.operations.library import Library


class Result(NamedTuple):
    """Result for one hook or counter: what it records if it works, else what is wrong."""

    name: str
    works: bool
    message: str


def selftests() -> list[Result]:
    """Import each installed library, attach its hook, exercise it, and detach again. Not for a process that trains."""
    said: dict[str, tuple[bool, str]] = {}
    undo = attach(lambda name, attached, why: said.update({name: (attached, why)}))
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # importing it would ask PyPI for a newer version
    try:
        return [try_one(library, said) for library in LIBRARIES if library not in untapped.LIBRARIES and installed(library)]
    finally:
        undo()


def installed(library: Library) -> bool:
    return importlib.util.find_spec(library.module.partition(".")[0]) is not None


def try_one(library: Library, said: dict[str, tuple[bool, str]]) -> Result:
    """Import and exercise one library; ``said`` is what its hook reports."""
    try:
        importlib.import_module(library.module)
    except Exception as error:
        return Result(library.name, False, f"cannot be imported: {type(error).__name__}: {error}")
    attached, why = said.get(library.name, (False, "its import was not noticed"))
    if not attached:
        return Result(library.name, False, why)
    try:
        failure = library.selftest()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return Result(library.name, failure is None, failure or why)
