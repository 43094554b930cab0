"""How a program ended, for its run folder.

It has its exit code, the type of its exception, and the line that raised it, but never its message.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from feedline.profiler import masks

INTERRUPTED = 130  # exit code after Ctrl-C
_MOST_CAUSES = 8  # of one exception, to look for a killed worker or a full disk
#: torch's own words (torch/utils/data/_utils/signal_handling.py, DataLoader.cpp).
_KILLED = re.compile(
    r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<signal>[A-Z][A-Za-z ]{2,40})\."
)
_OF_WORKER = "because a DataLoader worker was killed ({})"
_SIGKILL = "Killed"  # strsignal(SIGKILL)
#: torch.save whose file did not take all of its bytes (caffe2/serialize/inline_container.cc).
_UNWRITTEN = re.compile(
    r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos \d+ vs "
    r"\d+"
)
#: Batches of workers that the program keeps, each with a descriptor of its shared memory, have used
#: up what it may open: torch's words (torch/utils/data/dataloader.py), and those of Python's
#: multiprocessing/reduction.py.
ALL_OPEN = "too many open files: batches that are kept"
_ALL_OPEN = re.compile(
    r"Communication with the workers is no longer possible|received 0 items of ancdata"
)
#: A worker's traceback, which torch puts into the message of the exception that the training gets
#: (torch/_utils.py, ExceptionWrapper).
_IN_WORKER = re.compile(r"^Caught \w+ in DataLoader worker process \d+\.\nOriginal Traceback")
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in ', re.MULTILINE)


@dataclass(frozen=True)
class Ending:
    """The end of a program.

    Attributes:
        exit_code: None: unknown.
        by: type of its exception, with a worker's signal or the system's error; empty where it did
            not fail with one.
        at: line of the program that raised it or was interrupted, as in ``train.py:31``; empty
            where that is not known.
        killed: pid of the worker that a SIGKILL ended; 0: none was.
    """

    exit_code: int | None
    by: str = ""
    at: str = ""
    killed: int = 0

    @classmethod
    def of(cls, error: BaseException | None) -> "Ending":
        """Return the end of a program that this exception left; None: it came to its end."""
        try:
            at = "" if error is None else _at(error)
            return cls(exit_code_of(error), _by(error), at, _killed(error))
        except (
            Exception
        ):  # an exception of the program's may have any kind of text, or a type without a name
            return cls(exit_code_of(error))

    def because_of_worker(self, pid: int) -> "Ending":
        """Return the same, which came of a worker that a SIGKILL ended."""
        return replace(self, by=f"{self.by}, {_OF_WORKER.format(_SIGKILL)}", killed=pid)


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code that Python gives a program that ended this way."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        code = error.code
        if isinstance(code, int):
            if not -(1 << 63) <= code < 1 << 63:  # no C long
                return -1
            return int(code) if -(1 << 31) <= code < 1 << 32 else code & 0xFF  # as the system does
        return 0 if code is None else 1
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def text_of(value: object) -> str:
    """Return the text of a value; empty if it cannot be printed, as in Python."""
    try:
        return str(value)
    except Exception:
        return ""


def _by(error: BaseException | None) -> str:
    if error is None or isinstance(error, (SystemExit, KeyboardInterrupt)):
        return ""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    if killed := _killing(error):
        return f"{name}, {_OF_WORKER.format(killed['signal'])}"
    if any(_UNWRITTEN.search(text_of(cause)) for cause in _chain(error)):
        return f"{name}, because a file could not be written (is the disk full?)"
    if any(_ALL_OPEN.search(text_of(cause)) for cause in _chain(error)):
        return f"{name} ({ALL_OPEN})"
    system = next(
        (cause for cause in _chain(error) if type(cause) is OSError and cause.errno), None
    )
    return f"{name} ({os.strerror(system.errno)})" if system is not None and system.errno else name


def _killing(error: BaseException | None) -> re.Match[str] | None:
    """Return torch's words on a worker that a signal ended; None: none did.

    Torch raises its exceptions from each other. One that only came while another was handled may
    have any reason: a second try with fewer workers may fail because the disk is full.
    """
    for _ in range(_MOST_CAUSES):
        if error is None:
            break
        if match := _KILLED.search(text_of(error)):
            return match
        error = error.__cause__
    return None


def _killed(error: BaseException | None) -> int:
    killed = _killing(error)
    return int(killed["pid"]) if killed and killed["signal"] == _SIGKILL else 0


def _at(error: BaseException) -> str:
    """Return the innermost line of the program's own code that raised.

    It is in a worker if that is where the exception was raised.
    """
    text = text_of(error)
    frames = (
        [(file, int(line)) for file, line in _FRAME.findall(text)] if _IN_WORKER.match(text) else []
    )
    own = [
        place
        for place in frames or _frames(error)
        if not place[0].startswith("<") and not masks.library(place[0])
    ]
    return f"{masks.source(own[-1][0])}:{own[-1][1]}" if own else ""


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield the file and line of each frame of its traceback, the outermost first."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it came of; a loop among them ends it."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
