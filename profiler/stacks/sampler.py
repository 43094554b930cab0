"""The training's part of the stack sampler: starts the helper, tells it of processes and threads,
and ends it.
"""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from feedline.profiler import masks, proc
from feedline.profiler.message import TURNED_OFF, Message, ReportHook
from feedline.profiler.stacks import targets
from feedline.profiler.stacks.layout import UnknownLayout, find_layout
from feedline.profiler.stacks.process_memory import ProcessMemory
from feedline.profiler.stacks.targets import SampledProcess
from feedline.profiler.store.stack_format import LOG, MAIN, helper_of

NAME = "stacks"
GIVES = "the lines of the program that take time, in every process"
_VARIABLE = "FEEDLINE_STACKS"  # an environment variable; 0: no stacks are sampled
_START_S, _END_S, _POLL_S = 10.0, 1.0, 0.005


def switched_off() -> bool:
    """Return whether the environment forbids it."""
    return os.environ.get(_VARIABLE) == "0"


class StackSampling:
    """The sampling of a rank's stacks, from the first ``tick`` to ``stop``.

    All of it but ``stop`` runs in the thread that samples the machine: starting a process takes
    milliseconds.

    Args:
        folder: of the rank.
        report: is told whether stacks are sampled, or why not.
        wanted: False: the user has turned it off.
    """

    def __init__(self, folder: Path, report: ReportHook, wanted: bool = True) -> None:
        self._folder, self._report = folder, report
        self._process: SampledProcess | None = None
        self._pid = os.getpid()
        self._begun = False
        self.wanted = wanted and not switched_off()
        if not self.wanted:
            report(NAME, False, Message("turned off", TURNED_OFF))

    def tick(self) -> None:
        """Start, or tell the helper of new threads. Never raises an Exception."""
        if not self.wanted or os.getpid() != self._pid:
            return
        if not self._begun:
            self._begun = True
            self._start()
        if self._process is not None:
            self._process.tick()

    def stop(self) -> None:
        """End the helper, and wait until it has written what it has. Never raises an Exception."""
        self.wanted = False
        if self._process is None or os.getpid() != self._pid:
            return
        self._process = None
        with suppress(Exception):
            helper = helper_of(self._folder / LOG)  # one that has not begun ends by itself
            started = proc.started(helper) if helper else 0
            targets.end(self._folder)
            deadline = time.monotonic() + _END_S
            while started and proc.started(helper) == started and time.monotonic() < deadline:
                time.sleep(_POLL_S)

    def _start(self) -> None:
        try:
            ProcessMemory(os.getpid()).words(id(self), 1)
            layout = find_layout()
            _start_helper(self._folder, json.dumps(layout.as_json()))
        except UnknownLayout as error:
            self._report(NAME, False, str(error))
        except Exception as error:
            self._report(NAME, False, masks.error(error))
        else:
            self._process = SampledProcess(self._folder, MAIN, (threading.get_native_id(),))
            self._report(NAME, True, GIVES)
            if not self.wanted:  # the recording has ended meanwhile
                self.stop()


def _start_helper(folder: Path, layout: str) -> None:
    """Start the helper, as no child of this process: programs wait for all of their children.

    Raises:
        OSError, RuntimeError: it did not start.
    """
    arguments = [str(folder.absolute()), str(os.getpid()), str(proc.started(os.getpid())), layout]
    path = [place for place in sys.path if place]
    program = (
        f"import sys; sys.path[:] = {json.dumps(path)}; "
        f"from feedline.profiler.stacks.helper import main; main({json.dumps(arguments)})"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FEEDLINE")  # it is not to be recorded
    }
    started = subprocess.run(
        [sys.executable, "-I", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        timeout=_START_S,
        check=False,
    )
    if started.returncode:
        raise RuntimeError("the process that reads stacks did not start")
