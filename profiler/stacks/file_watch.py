"""Waits until a file in a folder is written to (inotify(7)), or until a moment."""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path

_IN_MODIFY, _IN_CREATE = 0x2, 0x100
_EVENTS_BYTES = 4096


class FolderWatch:
    """Waits for a change in a folder; where the kernel or a file system tells of none, only for the
    time.
    """

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None)
        self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file >= 0:
            libc.inotify_add_watch(self._file, os.fsencode(folder), _IN_MODIFY | _IN_CREATE)

    def wait(self, seconds: float) -> bool:
        """Wait for at most that long; return whether something has changed."""
        files = [self._file] if self._file >= 0 else []
        changed = bool(select.select(files, [], [], max(0.0, seconds))[0])
        if changed:
            with suppress(BlockingIOError):
                os.read(self._file, _EVENTS_BYTES)
        return changed
