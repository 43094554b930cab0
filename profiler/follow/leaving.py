"""Detects ends of a process that bypass ``atexit``: os._exit, os.exec*, and a signal from its parent, as multiprocessing.Pool sends to its
workers."""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from feedline.profiler.arrivals import arrivals
from feedline.profiler.taps.patch import Patches

Leave = Callable[[int | None], None]
End = Callable[[int, str], None]
_ENDS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # a process, where it does not handle them
_EXECS = ("execv", "execve")  # the others call these two
#: Methods of ``Popen`` by which a child is signalled; os.kill itself would have a frame of ours in what Ctrl-C prints.
_SENDERS = {"subprocess": "send_signal", "multiprocessing.popen_fork": "_send_signal"}

_patches: Patches | None = None


def attach(leaves: Leave, ends: End) -> None:
    """Call back before the end of this process or of a fork of it.

    Args:
        leaves: called with the exit code; None: this process becomes another program.
        ends: called with a child's process id and the name of the signal that is about to be sent to it.
    """
    global _patches
    if _patches is not None:
        _patches.undo()
    _patches = Patches()
    _patches.set(os, "_exit", _before(os._exit, lambda status, *_, **__: leaves(int(status))))
    for name in _EXECS:
        _patches.set(os, name, _before(getattr(os, name), lambda *_, **__: leaves(None)))
    for module, name in _SENDERS.items():
        arrivals.when_imported(module, functools.partial(_watch, _patches, name, ends))


def _watch(patches: Patches, name: str, ends: End, module: Any) -> None:
    def sends(child: Any, number: int) -> None:
        if number in _ENDS:
            ends(child.pid, signal.Signals(number).name)

    patches.set(module.Popen, name, _before(getattr(module.Popen, name), sends))


def _before(original: Any, act: Callable[..., None]) -> Any:
    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> Any:
        try:
            act(*args, **kwargs)
        except Exception:
            pass  # the program ends as it wants to
        return original(*args, **kwargs)

    return leave
