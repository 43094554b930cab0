"""Runs a training as a child process of a command, with its output in a file. Nothing that it started outlives it."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from feedline.cli.interrupt import ended_in_order
from feedline.profiler.deferred import deferred
from feedline.profiler.files import results
from feedline.profiler.samplers.processes import descendants, tidies_up

LAST_LINES = 12  # of a training that failed
PATIENCE_S = 30.0  # for torchrun to end its ranks; it gives them as long, and would leave those that ignore SIGTERM if it is killed first
TIDYING_S = 5.0  # for those that unlink shared memory once all others have ended
SET_CHILD_SUBREAPER = 36  # of prctl (Linux 3.4)


def run(command: Sequence[str], log: Path, environment: dict[str, str], patience_s: float = PATIENCE_S) -> int:
    """Run a command to its end. Ctrl-C in a terminal does not reach it, because torchrun leaves ranks behind if it is interrupted twice. It
    is ended when this process is interrupted or terminated.

    Args:
        patience_s: what it has left then to end by itself; 0: it is killed at once.

    Returns:
        Its exit code; 128 + the signal's number if one ended it.

    Raises:
        OutputError: the log cannot be written. KeyboardInterrupt, SystemExit: this process is to end; all that was started has ended.
    """
    process, others = None, frozenset(descendants(os.getpid()))
    with ended_in_order(), orphans_adopted(), os.fdopen(results.log(log.parent, log.name), "wb") as output:
        try:
            with deferred():  # a start that Ctrl-C cut in two would leave a training that is not known
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
                )
            code = process.wait()
        finally:
            if process is not None:
                end(process, patience_s, others)
    return code if code >= 0 else 128 - code


@contextmanager
def orphans_adopted() -> Iterator[None]:
    """Inside, this process is the parent of daemons that a training leaves, so that they are found below it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    try:
        yield
    finally:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, ctypes.c_ulong(0), 0, 0, 0)


def end(process: "subprocess.Popen[bytes]", patience_s: float, others: frozenset[int]) -> None:
    """Let it end its own processes, then end all that is left of them: torchrun's ranks have their own sessions. Another Ctrl-C does not
    wait."""
    try:
        if patience_s and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(patience_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill(process, others)


def kill(process: "subprocess.Popen[bytes]", others: frozenset[int]) -> None:
    """Kill all that is below this process, but for those that were before. What unlinks shared memory comes last."""
    began = time.monotonic()
    while time.monotonic() < began + 2 * TIDYING_S:  # unless one hangs in the kernel
        process.poll()
        left = [pid for pid in descendants(os.getpid()) if pid not in others]
        for pid in left:
            if not tidies_up(pid) or time.monotonic() > began + TIDYING_S:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if pid != process.pid:
                with suppress(ChildProcessError):  # it is that of another, and comes to us when that one ends
                    os.waitpid(pid, os.WNOHANG)
        if not left:
            return
        time.sleep(0.01)


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(f"  {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
