"""Finds processes below this one that use torch but will not record themselves, such as one with a cleared environment."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import proc
from feedline.profiler.record import privacy
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.samplers.source import Source
from feedline.profiler.store import processes

if TYPE_CHECKING:
    from feedline.profiler.store.shapes import LineShape

_VARIABLE = b"FEEDLINE_RUN="
_LIBRARY = b"/libtorch_cpu.so"
_LOOKS = (1, 3, 10, 30, 100, 300, 1000)  # readings after which a process is looked at: reading its mappings takes milliseconds


class Unfollowed(Source):
    """Writes their names into the run folder. Provides no gauges.

    Args:
        run: the run folder.
        record_argv: which arguments to keep: ``all``, ``masked`` or ``none``.
    """

    name = "unfollowed"

    def __init__(self, run: Path, record_argv: str = "masked") -> None:
        super().__init__()
        self._run, self._record_argv, self._pid = run, record_argv, os.getpid()
        self._ages: dict[int, int] = {}
        self._starts = {_environment_at(self._pid)}

    def prepare(self) -> str | None:
        return None

    def read(self) -> dict[str, float]:
        here = descendants(self._pid)
        self._ages = {pid: self._ages.get(pid, 0) + 1 for pid in here}
        for pid in here:
            if self._ages[pid] in _LOOKS and _LIBRARY in proc.read(pid, "maps"):
                self._ages[pid] = max(_LOOKS)  # not again
                self._look(pid)
        return {}

    def _look(self, pid: int) -> None:
        start = _environment_at(pid)
        if start in self._starts:  # a fork of a process that was looked at: its start is that one's
            return
        self._starts.add(start)
        command = [word.decode(errors="replace") for word in proc.read(pid, "cmdline").rstrip(b"\0").split(b"\0")]
        if not command[0]:
            return
        environ = proc.read(pid, "environ").split(b"\0")
        if not any(variable.startswith(_VARIABLE) for variable in environ):
            why = "its environment was replaced"
        elif any(word.startswith("-") and not word.startswith("--") and "S" in word for word in command[1:3]):
            why = "python -S runs no start-up hooks"
        elif not any(process.pid == pid for process in processes.read(self._run)):
            why = "its Python has no feedline, or it may not write to the run folder"
        else:
            return
        shown = privacy.recorded_argv(_script(command), self._record_argv)
        line: LineShape = {"pid": pid, "started": proc.started(pid), "command": shown, "unseen": why}
        processes.write(self._run, line)


def _environment_at(pid: int) -> bytes:
    """Where its environment begins in its memory (proc_pid_stat(5), env_start): every exec chooses another place at random."""
    fields = proc.stat(pid)
    return fields[47] if len(fields) > 47 else b""


def _script(command: list[str]) -> list[str]:
    """A command line without its interpreter and the interpreter's options."""
    rest = command[1:]
    while len(rest) > 1 and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
        rest = rest[1:]
    return rest or command
