"""The training's part of the stack sampler.

Starts the helper, tells it of processes and threads, and ends it.
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
from feedline.profiler.files import owned
from feedline.profiler.message import TURNED_OFF, Message, ReportHook
from feedline.profiler.stacks import targets
from feedline.profiler.stacks.interpreter_layout import UnknownLayout, find_layout
from feedline.profiler.stacks.targets import SampledProcess
from feedline.profiler.stacks.thread_stacks import Torn, reads_truly
from feedline.profiler.store.stack_format import LOG, MAIN, helper_of

_NAME = "stacks"
_GIVES = "the lines of the program that take time, in every process"
#: An environment variable; 0: no stacks are sampled. Another number: so many per second and thread,
#: whatever they cost.
_VARIABLE = "FEEDLINE_STACKS"
_START_S, _END_S, _POLL_S = 10.0, 1.0, 0.005


def _wanted_rate() -> float | None:
    """Return the samples per second that the environment asks for; None: it does not say."""
    try:
        return max(0.0, float(os.environ[_VARIABLE]))
    except (LookupError, ValueError):
        return None


class StackSampling:
    """The sampling of a rank's stacks, from the first ``tick`` to ``stop``.

    All of it but ``stop`` runs in the thread that samples the machine, and the start in one of its
    own: starting a process takes a tenth of a second, in which the machine is to be sampled.

    Args:
        folder: of the rank.
        report: is told whether stacks are sampled, or why not.
        wanted: False: the user has turned it off.
    """

    def __init__(self, folder: Path, report: ReportHook, wanted: bool = True) -> None:
        self._folder, self._report = folder, report
        self._process: SampledProcess | None = None
        self._pid = os.getpid()
        self._starter: threading.Thread | None = None
        self._rate = _wanted_rate()
        self.wanted = wanted and self._rate != 0
        if not self.wanted:
            report(_NAME, False, Message("turned off", TURNED_OFF))

    def tick(self) -> None:
        """Start, or tell the helper of new threads. Never raises an Exception."""
        if not self.wanted or os.getpid() != self._pid:
            return
        if self._starter is None:
            own = threading.get_native_id()
            self._starter = threading.Thread(target=self._start, args=(own,), daemon=True)
            self._starter.start()
        if self._process is not None:
            self._process.tick()

    def stop(self) -> None:
        """End the helper, and wait until it has written what it has. Never raises an Exception."""
        self.wanted = False
        if self._starter is None or os.getpid() != self._pid:
            return
        if self._starter is not threading.current_thread():
            self._starter.join(_END_S)
        if self._process is None:
            return
        self._process = None
        with suppress(Exception):
            helper = helper_of(self._folder / LOG)  # one that has not begun ends by itself
            started = proc.started(helper) if helper else 0
            targets.end(self._folder)
            deadline = time.monotonic() + _END_S
            while started and proc.started(helper) == started and time.monotonic() < deadline:
                time.sleep(_POLL_S)

    def _start(self, sampler: int) -> None:
        """Start the helper.

        Args:
            sampler: native id of the thread that samples the machine, which is not to be sampled.
        """
        try:
            layout = find_layout()
            if not reads_truly(layout):
                raise UnknownLayout(f"this Python ({sys.version.split()[0]}) is not known")
            # before the helper: to start it waits until every worker has ended that the training
            # forks meanwhile, as these inherit the pipe on which a started process is awaited
            process = SampledProcess(self._folder, MAIN, (sampler,))
            process.tick()
            self._process = process
            _start_helper(self._folder, json.dumps(layout.as_json()), self._rate)
        except (UnknownLayout, Torn, LookupError) as error:
            self._report(_NAME, False, str(error) or "stacks that were read are wrong")
        except Exception as error:
            self._process = None
            with suppress(Exception):
                owned.discard(self._folder, targets.TARGETS)
            self._report(_NAME, False, masks.error(error))
        else:
            process.tick()  # lets the helper read; the sampler's next one is a second away
            self._report(_NAME, True, _GIVES)
            if not self.wanted:  # the recording has ended meanwhile
                self.stop()


def _start_helper(folder: Path, layout: str, rate: float | None) -> None:
    """Start the helper, as no child of this process: programs wait for all of their children.

    Raises:
        OSError, RuntimeError: it did not start.
    """
    training = [str(os.getpid()), str(proc.started(os.getpid()))]
    arguments = [str(folder.absolute()), *training, layout, str(rate or 0.0)]
    path = [place for place in sys.path if place and isinstance(place, str)]
    program = (
        f"import sys; sys.path[:] = {path!a}; "
        f"from feedline.profiler.stacks.helper import main; main({arguments!a})"
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
