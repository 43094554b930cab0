"""Ends of a process that ``atexit`` does not see: os._exit, and os.exec*, by which it becomes another program."""

import functools
import os
from collections.abc import Callable
from typing import Any

from feedline.profiler.taps.patch import Patches

Leave = Callable[[int | None], None]
_EXECS = ("execv", "execve")  # the others call these two

_patches: Patches | None = None


def attach(leaves: Leave) -> None:
    """Call ``leaves`` with the exit code before such an end of this process or of a fork of it; None: it becomes another program."""
    global _patches
    if _patches is not None:
        _patches.undo()
    _patches = Patches()
    _patches.set(os, "_exit", _before(os._exit, lambda status, *_, **__: leaves(int(status))))
    for name in _EXECS:
        _patches.set(os, name, _before(getattr(os, name), lambda *_, **__: leaves(None)))


def _before(original: Any, act: Callable[..., None]) -> Any:
    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> Any:
        try:
            act(*args, **kwargs)
        except Exception:
            pass  # the program ends as it wants to
        return original(*args, **kwargs)

    return leave
