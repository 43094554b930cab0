"""A command as a terminal runs it: a process group of its own, to which Ctrl-C sends SIGINT."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MARK = "RUN_IN_TERMINAL"
# for processes that helped: torchrun ends its ranks, a loader's worker looks for its parent every 5
# s
GONE_S = 20.0


@dataclass
class Ended:
    """What came of it.

    Attributes:
        at_s: when Ctrl-C was sent, seconds from the start; None: the command had ended before.
        left: command lines of processes that outlived it.
    """

    code: int
    out: str
    err: str
    took_s: float
    at_s: float | None
    left: list[str]

    @property
    def lines(self) -> list[str]:
        """What feedline said on standard error after Ctrl-C."""
        return [line for line in self.err.splitlines() if "interrupted" in line]


@dataclass
class Terminal:
    """Where commands are typed.

    Attributes:
        folder: the working directory.
    """

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(
        self,
        *words: object,
        until: "Callable[[int], bool] | float | None" = None,
        patience_s: float = 280.0,
    ) -> Ended:
        """Type a command, and Ctrl-C.

        Args:
            until: when to press it: seconds after the start, or as soon as this is true of its
                process number; None: never.
        """
        environment = {
            name: value for name, value in os.environ.items() if name != "FEEDLINE_TRACEBACK"
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "feedline", *map(str, words)],
            cwd=self.folder,
            env={**environment, MARK: self.mark, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0 if sys.version_info >= (3, 11) else None,
            preexec_fn=begin,
        )
        began, at = time.monotonic(), None
        while until is not None and process.poll() is None:
            now = time.monotonic() - began
            if now >= until if isinstance(until, float) else until(process.pid):
                os.killpg(process.pid, signal.SIGINT)
                at = now
                break
            time.sleep(0.005)
        out, err = process.communicate(timeout=patience_s)
        took = time.monotonic() - began
        return Ended(process.returncode, out, err, took, at, self._left())

    def _left(self) -> list[str]:
        until = time.monotonic() + GONE_S
        while (found := processes_of(self.mark)) and time.monotonic() < until:
            time.sleep(0.1)
        return found


def begin() -> None:
    """In the new process: a job in the foreground."""
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a shell's background job ignores it, and so would all that the tests start
    if sys.version_info < (3, 11):
        os.setpgid(0, 0)


def processes_of(mark: str) -> list[str]:
    """Command lines of the processes that have the mark in their environment, and are no zombies."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                    found.append(
                        (place / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                    )
            except OSError:
                continue
    return found


def importing(pid: int) -> bool:
    """Whether a process has begun to load libraries."""
    try:
        return b"site-packages" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
