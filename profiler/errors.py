"""Every error a user can see, with the exit code of the command that met it (numbers from sysexits.h; docs/exit-codes.md has all codes).

FeedlineError                  70
+-- ScriptError                 2   the script or module to run cannot be found (Python's own code for it)
+-- RunNotFound                66   no run folder at that path
+-- RunDamaged                 65   a run folder whose files cannot be read
+-- SchemaTooNew               76   written by a newer feedline
+-- OutputError                73   the place to write to is read-only or full
|   +-- PlaceTaken             73   it exists already, or holds files that feedline did not make
+-- MissingDependency          69   an optional package is needed for this and is not installed
+-- DataError                  66   a folder of images that is missing or holds nothing that can be used; missing ceilings
+-- StoreDamaged               65   a packed dataset that is incomplete, or whose bytes are not those that were packed
+-- CeilingsDamaged            65   a file of ceilings that cannot be read
+-- WorkersLost                69   helper processes of a pool or a cluster do not respond
+-- TraceDamaged               65   a trace of another tool that cannot be read, is empty, or is larger than the limit
+-- RankCollision              65   two traces claim one rank
+-- FixError                   64   --fix names an unknown fix, contradicts itself, or cannot be applied from outside
+-- BudgetError                78   a file of `feedline check --budget` that cannot be read, or has a key that does not exist
+-- OverBudget                 77   the run exceeds a limit of its budget
+-- NotJudged                  75   the run exceeds no limit, but some could not be judged; its ranks share no work; or it failed
+-- ProcessNotFound           67   no process with that number, it has ended, or it does not run Python
+-- NotPermitted              71   the system does not let a process be read
+-- Interrupted               130   Ctrl-C; the message says what became of the output
+-- UserCodeError               1   a transform or model given as module:name that cannot be imported, or raises
"""

import builtins
import os
from types import FrameType, TracebackType
from typing import Any, NamedTuple

#: Behind the file's name of functions that stand for others (taps/patch.py). warnings.warn passes by
#: frames of files with the last two words in their names, those of the import system.
SKIPPED_FILE_SUFFIX = " (feedline; passed by like importlib._bootstrap)"
#: Python has them from 3.11 on.
_GROUPS: Any = getattr(builtins, "BaseExceptionGroup", ())


def shows_tracebacks() -> bool:
    """Return whether an error of feedline's own is to be shown as Python shows it.

    ``FEEDLINE_TRACEBACK=1`` asks for it, as in feedline's tests.
    """
    return bool(os.environ.get("FEEDLINE_TRACEBACK"))


class FeedlineError(Exception):
    """Base of all errors whose message is meant for the user: what, where, and the way out.

    Args:
        message: in one line.
        more: what follows in lines of its own, such as code to write or the end of a log.
    """

    exit_code = 70

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.args)


class ScriptError(FeedlineError):
    exit_code = 2


class RunNotFound(FeedlineError):
    exit_code = 66


class RunDamaged(FeedlineError):
    exit_code = 65


class SchemaTooNew(FeedlineError):
    exit_code = 76

    @classmethod
    def of(cls, place: object, schema: int, known: int, made: str = "written") -> "SchemaTooNew":
        """Return the error for a schema above the one that this feedline knows."""
        return cls(
            f"{place} was {made} by a newer feedline (schema {schema}, this one reads up to "
            f"{known}): update feedline"
        )


class WayOut(NamedTuple):
    """A way out, worded for a command and for a function call."""

    command: str
    call: str


ELSEWHERE = WayOut("name another folder with -o", "pass another path")
OVERWRITE = WayOut("overwrite it with -f", "overwrite=True to replace it")


class OutputError(FeedlineError):
    """Raised by commands and functions alike: it keeps the problem and the ways out separately.

    Args:
        what: what is wrong, and where.
        ways: out of it; a text is the same for a command and for a call.
    """

    exit_code = 73

    def __init__(self, what: str, *ways: WayOut | str) -> None:
        self._what, self._ways = what, ways
        super().__init__(
            self._said([way.command if isinstance(way, WayOut) else way for way in ways])
        )

    @classmethod
    def unwritable(cls, place: object, error: OSError, *ways: WayOut | str) -> "OutputError":
        """Return the error for a place that the operating system refused to write to.

        Args:
            place: a path, or words that name one.
            error: of the operating system.
            *ways: out of it.
        """
        return cls(f"cannot write {place} ({error.strerror or error})", *ways)

    @property
    def what(self) -> str:
        """What is wrong, without the ways out."""
        return self._what

    def for_call(self) -> None:
        """Word the ways out for a function call from here on."""
        self.args = (
            self._said([way.call if isinstance(way, WayOut) else way for way in self._ways]),
        )

    def _said(self, ways: list[str]) -> str:
        return f"{self._what}: {', or '.join(ways)}" if ways else self._what


class PlaceTaken(OutputError):
    @classmethod
    def exists(cls, place: object, *ways: WayOut | str) -> "PlaceTaken":
        """Return the error for a name that is already taken."""
        return cls(f"{place} already exists", *(ways or (ELSEWHERE, OVERWRITE)))

    @classmethod
    def foreign(cls, place: object, *ways: WayOut | str) -> "PlaceTaken":
        """Return the error for a name taken by a file of the user's, which is never overwritten."""
        return cls(f"{place} already exists and was not written by feedline", *ways, ELSEWHERE)


class MissingDependency(FeedlineError):
    exit_code = 69


class DataError(FeedlineError):
    exit_code = 66


class StoreDamaged(FeedlineError):
    exit_code = 65


class CeilingsDamaged(FeedlineError):
    exit_code = 65


class WorkersLost(FeedlineError):
    exit_code = 69


class ProcessNotFound(FeedlineError):
    exit_code = 67


class NotPermitted(FeedlineError):
    exit_code = 71


class Interrupted(FeedlineError):
    exit_code = 130


class UserCodeError(FeedlineError):
    exit_code = 1


class TraceDamaged(FeedlineError):
    exit_code = 65


class RankCollision(FeedlineError):
    exit_code = 65


class FixError(FeedlineError):
    exit_code = 64


class BudgetError(FeedlineError):
    exit_code = 78


class OverBudget(FeedlineError):
    exit_code = 77


class NotJudged(FeedlineError):
    exit_code = 75


def leave_out_us(error: BaseException) -> None:
    """Remove feedline's frames from the traceback of an exception and of its causes.

    Where feedline raised it, they stay.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        here = waiting.pop()
        if here is None or id(here) in seen:
            continue
        seen.add(id(here))
        # by the base, which a class that allows no attribute to be set leaves alone
        BaseException.with_traceback(here, _without_us(here.__traceback__))
        # any other class may mean anything by it
        inside = here.exceptions if isinstance(here, _GROUPS) else ()
        waiting += [here.__cause__, here.__context__, *inside]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        if kept is None or not _is_ours(frame.tb_frame):
            frame.tb_next = kept
            kept = frame
    return kept


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame is of feedline, or of a function that stands for one of a library."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("feedline.") or frame.f_code.co_filename.endswith(SKIPPED_FILE_SUFFIX)
