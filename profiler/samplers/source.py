"""Base class of sources of gauges.

To add one, add a file with a subclass, and an instance in ``default_sources`` of sampler.py.
"""

import os
import resource

from feedline.profiler import clock, masks
from feedline.profiler.files.descriptor import Descriptor

_READ_BYTES = 16384


class GaugeSource:
    """A source of gauges.

    A subclass gives ``name``, ``prepare`` (fill ``units``; raise or return a reason when there is
    nothing to read) and ``read``.

    Attributes:
        units: gauge name -> unit ("1" for shares from 0 to 1, "B", "B/s", "s/s" for seconds a
            second, "W", "Hz", or the name of what is counted, such as "processes"); complete after
            ``probe``.
        missing: parts of the source that are absent, each with its reason; complete after
            ``probe``.
    """

    name = ""

    def __init__(self) -> None:
        self.units: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def probe(self) -> str | None:
        """Return the reason why the source cannot be read; None: it can.

        It never raises.
        """
        try:
            return self.prepare()
        except Exception as error:
            return reason_of(error)

    def prepare(self) -> str | None:
        """Prepare as ``probe``, but possibly raise.

        It takes the first reading of the counters, so that the first ``read`` has rates.
        """
        raise NotImplementedError

    def read(self) -> dict[str, float]:
        """Return the current value of each gauge; a rate is the mean since the previous call.

        Gauges without a value are left out.

        Raises:
            OSError, ValueError, ...: the source is gone; it is not asked again.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, object]:
        """Return the facts that do not change during a run, for the manifest."""
        return {}


class Rates:
    """Converts growing counters into rates."""

    def __init__(self) -> None:
        self._then = 0
        self._before: dict[str, float] = {}

    def per_second(self, counters: dict[str, float]) -> dict[str, float]:
        """Return the growth per second since the previous call.

        Counters that are new or went backwards (a reset) are left out.
        """
        now, then, before = clock.wall_ns(), self._then, self._before
        self._then, self._before = now, counters
        if now <= then:
            return {}
        return {
            name: (value - before[name]) * 1e9 / (now - then)
            for name, value in counters.items()
            if before.get(name, float("inf")) <= value
        }


class OpenFile:
    """A file of /proc that is opened once and read repeatedly.

    That takes a third of opening it each time. It is only for files that the kernel hands out
    whole. That of a process stays that process's when its number is used again. Where the process
    uses half of the descriptors that it may open, the rest is the program's: the file is opened
    each time.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._file: Descriptor | None = None
        if allowed >= 0 and 2 * number >= allowed:
            os.close(number)
        else:
            self._file = Descriptor(number, closes=True)

    def read(self) -> bytes:
        """Return its current content.

        Raises:
            OSError: with the path in it.
        """
        if self._file is None:
            return read_file(self.path)
        try:
            return os.pread(self._file.number(), _READ_BYTES, 0)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None


def read_file(path: str) -> bytes:
    """Return the whole content of a file in /proc or /sys.

    Raises:
        OSError: with the path in it, also when only the reading fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = more = os.read(fd, _READ_BYTES)
        while more:  # /proc hands out long files a page at a time
            more = os.read(fd, _READ_BYTES)
            data += more
        return data
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)


def reason_of(error: Exception) -> str:
    """Return an exception as text for a list of absent sources, with its path if it has one."""
    if isinstance(error, OSError) and error.strerror:
        path = masks.path(str(error.filename)) if error.filename else ""
        return f"{path}: {error.strerror}" if path else error.strerror
    # of the machine's: a source runs none of the program's code
    return masks.text(f"{type(error).__name__}: {error}")
