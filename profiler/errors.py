"""Every error a user can see, with the exit code of the command that met it (numbers from sysexits.h).

FeedlineError                  70
+-- ScriptError                 2   the script or module to run cannot be found (Python's own code for it)
+-- RunNotFound                66   no run folder there
+-- RunDamaged                 65   a run folder whose files cannot be read
+-- SchemaTooNew               76   written by a newer feedline
+-- OutputError                73   the place to write to is read-only or full
|   +-- PlaceTaken             73   it exists already, or holds files that feedline did not make
+-- MissingDependency          69   an optional package is needed for this and is not installed
+-- DataError                  66   a folder of images that is missing, or has nothing in it that can be used
+-- StoreDamaged               65   a packed data set that is not whole, or whose bytes are not those that were packed
+-- CeilingsDamaged            65   a file of ceilings that cannot be read
+-- WorkersLost                69   processes of a pool or of a cluster that are to help do not answer
+-- TraceDamaged               65   a trace of another tool that cannot be read, is empty, or is larger than the limit
+-- RankCollision              65   two traces claim one rank
+-- FixError                   64   --fix names something that is none, contradicts itself, or cannot be applied from outside
+-- UserCodeError               1   a transform or model given as module:name that cannot be imported, or raises
"""

import os


def shows_tracebacks() -> bool:
    """Whether an error of feedline's own is to be shown as Python shows it: ``FEEDLINE_TRACEBACK=1``, as in feedline's tests."""
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


class OutputError(FeedlineError):
    exit_code = 73


class PlaceTaken(OutputError):
    pass


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


class UserCodeError(FeedlineError):
    exit_code = 1


class TraceDamaged(FeedlineError):
    exit_code = 65


class RankCollision(FeedlineError):
    exit_code = 65


class FixError(FeedlineError):
    exit_code = 64
