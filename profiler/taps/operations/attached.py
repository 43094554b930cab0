"""The library taps attached in this process."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType

from feedline.profiler import masks
from feedline.profiler.arrivals import arrivals
from feedline.profiler.taps.operations.library import Library, NotPossible, Tap

Report = Callable[[str, bool, str], None]  # hook, attached?, what it gives or why it could not be attached


class Attached:
    """The taps of some libraries, attached while at least one user needs them."""

    def __init__(self, libraries: Sequence[Library]) -> None:
        self._libraries = libraries
        self._users = 0
        self._report: Report = lambda *_: None
        self._pid = 0  # who may call it: a process forked since is not the one that reports
        self._said: dict[str, tuple[bool, str]] = {}
        self._taps: dict[str, Tap] = {}
        self._awaited: dict[str, Callable[[], None]] = {}  # name -> what ends the waiting

    def attach(self, report: Report) -> Callable[[], None]:
        """See ``operations.attach``."""
        self._users += 1
        self._report, self._pid = report, os.getpid()
        for library in self._libraries:
            if library.name in self._said:
                self._tell(library, *self._said[library.name])
            elif library.module in sys.modules:
                self._install(library, sys.modules[library.module], late=True)
            elif library.name not in self._awaited:
                self._awaited[library.name] = arrivals.when_imported(library.module, functools.partial(self._arrived, library))
        undone: list[bool] = []

        def undo() -> None:
            if not undone:
                undone.append(True)
                self._detach()

        return undo

    def _arrived(self, library: Library, module: ModuleType) -> None:
        self._awaited.pop(library.name, None)
        self._install(library, module, late=False)

    def _install(self, library: Library, module: ModuleType, late: bool) -> None:
        tap = Tap(late)
        try:
            library.install(tap, module)
        except Exception as error:
            tap.undo()
            self._tell(library, False, error.why if isinstance(error, NotPossible) else masks.error(error))
        else:
            self._taps[library.name] = tap
            self._tell(library, True, "; ".join([library.gives, *tap.left]))

    def _tell(self, library: Library, attached: bool, why: str) -> None:
        self._said[library.name] = (attached, why)
        if os.getpid() == self._pid:
            with suppress(Exception):
                self._report(library.name, attached, why)

    def _detach(self) -> None:
        self._users -= 1
        if self._users:
            return
        for tap in reversed(list(self._taps.values())):
            tap.undo()
        self._taps.clear()
        self._said.clear()
        for wait_no_more in self._awaited.values():
            wait_no_more()
        self._awaited.clear()
