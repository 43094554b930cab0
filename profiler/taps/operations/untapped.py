"""Libraries that no tap can see into. They are named in the report."""

from collections.abc import Callable
from types import ModuleType

from feedline.profiler import message
from feedline.profiler.message import Message
from feedline.profiler.taps.operations.library import Library, NotPossible, Tap

_COUNTERS = "its work appears in the counters of CPU time, run-queue delay and bytes"
_EVERYTHING = f"open(...).read() is not replaced, because every import and log file goes through it; {_COUNTERS}"


def _untapped(name: str, module: str, why: str) -> Library:
    def install(tap: Tap, module: ModuleType) -> None:
        raise NotPossible(why)

    selftest: Callable[[], str | None] = lambda: why  # noqa: E731
    return Library(name, module, why, install, selftest)


LIBRARIES = (
    _untapped("open", "builtins", Message(_EVERYTHING, message.NOT_REPLACED)),
    _untapped("lmdb", "lmdb", f"Transaction.get belongs to an immutable type and reads by page faults; {_COUNTERS}"),
)
