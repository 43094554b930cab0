"""Memory of each of the loaders' workers, so that it is known how large one was that was killed."""

import os
import signal
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from feedline.profiler.samplers.source import GaugeSource, OpenFile

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_AT_ONCE = 16  # workers in a reading, 3 us each; of more, they take turns
_MOST = 128  # workers that are watched


class WorkerMemory(GaugeSource):
    """What each worker has in memory, without files and shared memory.

    memory/loader0-worker1: bytes. Pages that a forked worker shares with its parent are in it. A
    gauge begins with its worker; those of a later pass go on with it.
    """

    name = "worker memory"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._lock = threading.Lock()
        self._files: dict[str, OpenFile] = {}
        self._workers: dict[str, weakref.ref[Any]] = {}
        self._turn = 0

    def prepare(self) -> str | None:
        return None

    def watch(self, loader: int, workers: Sequence[Any]) -> None:
        """Read the memory of these workers as well, while they live.

        It can be called from any thread.

        Args:
            workers: processes of multiprocessing, by their numbers.

        Raises:
            OSError: one has ended.
            AttributeError, TypeError: they are no processes.
        """
        names = [f"memory/loader{loader}-worker{number}" for number in range(len(workers))]
        self._workers |= dict(zip(names, map(weakref.ref, workers)))
        new = {
            name: OpenFile(f"{self._proc}/{worker.pid}/statm")
            for name, worker in zip(names, workers)
        }
        with self._lock:
            for name, file in new.items():
                if name in self._files or len(self._files) < _MOST:
                    self.units[name] = "B"
                    self._files[name] = file

    def read(self) -> dict[str, float]:
        with self._lock:
            files = list(self._files.items())
        if len(files) > _MOST_AT_ONCE:
            self._turn = (self._turn + _MOST_AT_ONCE) % len(files)
            files = (files + files)[self._turn : self._turn + _MOST_AT_ONCE]
        values = {}
        for name, file in files:
            try:
                fields = file.read().split()
                nbytes = (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
            except (OSError, IndexError):
                nbytes = 0
            if nbytes:
                values[name] = float(nbytes)
            else:
                self._forget(name, file)
        return values

    def killed(self) -> int:
        """Return the pid of a worker of the last ones that a SIGKILL has ended; 0: none was."""
        for known in list(self._workers.values()):
            worker = known()
            with suppress(Exception):  # of another process, after a fork
                if worker is not None and worker.exitcode == -signal.SIGKILL:
                    return int(worker.pid)
        return 0

    def _forget(self, name: str, file: OpenFile) -> None:
        """Forget a worker that has ended, unless another one has its place."""
        with self._lock:
            if self._files.get(name) is file:
                del self._files[name]
