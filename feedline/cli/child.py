"""Runs a training as a child process of a command, with its output in a file."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from feedline.cli.interrupt import ended_in_order
from feedline.profiler.deferred import deferred
from feedline.profiler.files import results
from feedline.profiler.samplers.processes import descendants

LAST_LINES = 12  # of a training that failed
PATIENCE_S = 30.0  # for torchrun to end its ranks; it gives them as long, and would leave those that ignore SIGTERM if it is killed first


def run(command: Sequence[str], log: Path, environment: dict[str, str]) -> int:
    """Run a command to its end. Ctrl-C in a terminal does not reach it, because torchrun leaves ranks behind if it is interrupted twice. It
    is ended when this process is interrupted or terminated.

    Returns:
        Its exit code; 128 + the signal's number if one ended it.

    Raises:
        OutputError: the log cannot be written. KeyboardInterrupt, SystemExit: this process is to end; all that was started has ended.
    """
    process = None
    with ended_in_order(), os.fdopen(results.log(log.parent, log.name), "wb") as output:
        try:
            with deferred():  # a start that Ctrl-C cut in two would leave a training that is not known
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
                )
            code = process.wait()
        finally:
            if process is not None:
                end(process)
    return code if code >= 0 else 128 - code


def end(process: "subprocess.Popen[bytes]") -> None:
    """Let it end its own processes, then end the remaining ones: torchrun's ranks have their own sessions. Another Ctrl-C does not wait."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        left = descendants(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(f"  {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
