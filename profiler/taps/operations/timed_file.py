"""Proxy for an open file that times its reads."""

import io
from typing import Any

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.record.detail import Write


class TimedFile:
    """Behaves like the file; ``write_to`` records the sum of its reads.

    Bytes of an ``io.BytesIO`` are not counted: whoever put them there has read them.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._counts = type(file) is not io.BytesIO
        self._start = 0  # of the first read
        self._wall = self._cpu = self._runqueue = self._nbytes = 0

    def __getattr__(self, name: str) -> Any:
        if name == "_file":
            raise AttributeError(name)  # while it is being copied
        return getattr(self._file, name)

    def read(self, *args: Any) -> Any:
        """The file's ``read``."""
        begun = clock.now()
        data = None
        try:
            data = self._file.read(*args)
            return data
        finally:
            wall, cpu, runqueue = clock.since(begun)
            self._wall += wall
            self._cpu += cpu
            self._start = self._start or begun[0]
            self._runqueue = UNMEASURED if runqueue < 0 else self._runqueue + runqueue
            if data and self._counts:
                self._nbytes += len(data)

    def write_to(self, write: Write, name: str) -> None:
        """Write one READ span: it starts at the first read and lasts as long as all reads together."""
        if self._start:
            write(Stage.READ, name, self._start, self._wall, self._cpu, self._runqueue, self._nbytes, 0)
