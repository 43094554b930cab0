"""What a recorded process tells the helper.

A line of JSON in the rank's folder for each process whose threads are to be sampled, and one at the
end.
"""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from feedline.profiler import proc
from feedline.profiler.fail_open import fail_open
from feedline.profiler.files import owned
from feedline.profiler.stacks.interpreter_layout import code_type, thread_states
from feedline.profiler.stacks.memory_access import allow
from feedline.profiler.store.stack_format import LOG, MAIN, helper_of

_ANYONE = -1  # as a reader: each process of the same user (PR_SET_PTRACER_ANY)

TARGETS = "stacks.targets"
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
#: Libraries through which the ranks of a host read each other's memory (MPI, UCX). They allow it to
#: _ANYONE as they start, and fail where that is taken back. What starts later takes nothing from us.
_PEERS = re.compile(rb"/lib(mpi|mpich|open-pal|uct|uct_cma)[-.][^/\n]*\n")
END = "end"


@dataclass(frozen=True)
class _TargetLine:
    """A process to be sampled.

    Attributes:
        name: of the process in the run folder.
        pid, started: of it; clock ticks since boot.
        code_type: address of the type of code objects.
        state: address of the state of its main thread.
        ours: native ids of threads that are feedline's own.
    """

    name: str
    pid: int
    started: int
    code_type: int
    state: int
    ours: list[int]


class SampledProcess:
    """The process at hand, as the helper is to sample it. No method raises an Exception.

    Args:
        folder: of the rank.
        name: of the process in it.
        ours: native ids of threads that are feedline's own.
    """

    def __init__(self, folder: Path, name: str, ours: tuple[int, ...] = ()) -> None:
        self._folder, self._name, self._ours = folder, name, ours
        self._started = proc.started(os.getpid())
        self._told = False
        self._allowed = not _is_protected()

    def tick(self) -> None:
        """Tell of it at first, and let it be read; called now and then, it is cheap."""
        if not self._allowed:
            self._allow()
        if self._told:
            return
        self._told = True
        with fail_open:
            line = _TargetLine(
                self._name,
                os.getpid(),
                self._started,
                code_type(),
                thread_states()[-1],
                list(self._ours),
            )
            owned.add_line(self._folder, TARGETS, json.dumps(asdict(line)))

    def _allow(self) -> None:
        with fail_open:
            helper = helper_of(self._folder / LOG)
            if helper:
                # a worker has no peers, and what its parent has allowed ends with the fork
                peers = self._name == MAIN and _PEERS.search(proc.read(os.getpid(), "maps"))
                allow(_ANYONE if peers else helper)
                self._allowed = True


def _is_protected() -> bool:
    """Return whether only parents may read a process's memory, unless it allows it."""
    try:
        return _YAMA.read_text().strip() == "1"
    except OSError:
        return False


def end(folder: Path) -> None:
    """Tell the helper that the recording ends. Raises OSError, PlaceTaken."""
    owned.add_line(folder, TARGETS, json.dumps({END: True}))
