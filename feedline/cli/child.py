"""Trainings that a command runs as child processes, with their output in files."""

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from feedline.profiler import masks, proc
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FeedlineError
from feedline.profiler.files import results
from feedline.profiler.samplers.processes import descendants

#: In a training's arguments: a folder for what it writes, which is new for each of its runs.
OUT = "{out}"
_LAST_LINES = 12  # of a training that failed
#: torchrun's own log, and the line with which it begins to tell of a rank that failed.
_OF_TORCHRUN = re.compile(
    r"([IWE]\d{4} |\[\d{4}-|(ERROR|WARNING|INFO):).*?torch[./]distributed[./](run|elastic|launcher)\b"
)
_FAILED, _KILLED = "failed (exitcode: ", "failed (exitcode: -"
#: For torchrun to end its ranks; it gives them as long, and would leave those that ignore SIGTERM
#: if it is killed first.
_END_PATIENCE_S = 30.0
_TIDYING_S = 5.0  # for those that unlink shared memory once all others have ended
# in the environment of a trial and of all that it starts, daemons included
_MARK = "FEEDLINE_TRIAL"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run(
    command: Sequence[str], log: Path, environment: dict[str, str], leaves_nothing: bool = False
) -> int:
    """Run a command to its end.

    Ctrl-C in a terminal does not reach it, because torchrun leaves ranks behind if it is
    interrupted twice. It is ended when this process is interrupted or terminated.

    Args:
        command: the command line.
        log: file for its output.
        environment: its environment variables.
        leaves_nothing: whether to kill it at once then, and after it all that it started, daemons
            too. Otherwise it has _END_PATIENCE_S to end by itself, and a daemon stays.

    Returns:
        Its exit code; 128 + the signal's number if one ended it.

    Raises:
        OutputError: the log cannot be written.
        KeyboardInterrupt, SystemExit: this process is to end; all that was started has ended.
    """
    process, mark = None, secrets.token_hex(8)
    with _ended_in_order(), os.fdopen(results.log(log.parent, log.name), "wb") as output:
        try:
            # a start that Ctrl-C cut in two would leave a training that is not known
            with deferred():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**environment, _MARK: mark} if leaves_nothing else environment,
                    start_new_session=True,
                )
            code = process.wait()
        finally:
            if process is not None and leaves_nothing:
                _kill_marked(process, mark)
            elif process is not None:
                _end(process)
    return code if code >= 0 else 128 - code


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its own processes: torchrun's ranks have their own sessions.

    Another Ctrl-C does not wait.
    """
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(_END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        remaining = descendants(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in remaining:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _kill_marked(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill a trial and all that it started, what unlinks shared memory last.

    No signal interrupts that, for at most 2 * _TIDYING_S.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *_SIGNALS})
    try:
        began = time.monotonic()
        while time.monotonic() < began + 2 * _TIDYING_S:  # unless one hangs in the kernel
            remaining = set(_marked(mark))
            if process.poll() is None:
                # setproctitle writes over an environment
                remaining |= {process.pid, *descendants(process.pid)}
            if not remaining:
                return
            for pid in remaining:
                if not proc.tidies_up(pid) or time.monotonic() > began + _TIDYING_S:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _marked(mark: str) -> list[int]:
    """Return the processes with a trial's mark in their environment; zombies have none."""
    wanted = f"{_MARK}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if wanted in proc.read(pid, "environ").split(b"\0")]


def tail(log: Path) -> str:
    """Return the last lines of a log: what the ranks wrote, without what torchrun adds."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in (_of_ranks(lines) or lines)[-_LAST_LINES:])


def _of_ranks(lines: Sequence[str]) -> list[str]:
    """Leave out torchrun's log, and its traceback and box after a rank that failed.

    Of a rank that a signal ended, only torchrun tells.
    """
    kept = []
    for line in lines:
        of_torchrun = _OF_TORCHRUN.match(line)
        if not of_torchrun or _KILLED in line:
            kept.append(line)
        if of_torchrun and _FAILED in line:
            break
    return kept


def failure(run: Path) -> str:
    """Say which rank of a recorded training failed first, how, and at which line.

    Returns:
        ``rank 1 failed with ValueError at train.py:31 (exit code 1)``; "" where none recorded that,
        or one was killed: the others end because of it.
    """
    from feedline.analysis.explain.headline import how
    from feedline.profiler.store.trainings import trainings

    try:
        ranks = trainings(run)[0].run.ranks
    except FeedlineError:
        return ""
    manifests = {number: rank.manifest for number, rank in ranks.items()}
    ends = [
        (end.anchors[-1]["time_ns"], number)
        for number, end in manifests.items()
        if end.exit_code and end.anchors
    ]
    if not ends or any(end.state == "cut" for end in manifests.values()):
        return ""
    _, number = min(ends)  # the others end because of it
    end = manifests[number]
    ended = how(end.state, end.exit_code, masks.text(end.ended_by), masks.text(end.ended_at))
    return f"rank {number} {ended}"


def recording_command(run: Path, options: list[str], program: list[str], ranks: int) -> list[str]:
    """Return the command line that records one run of a training.

    Args:
        run: the run folder.
        options: those of ``feedline run``.
        program: script or ``-m module``, and its arguments; or ``--`` and a command.
        ranks: number of processes, under torchrun from 2 on.
    """
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        if ranks > 1
        else []
    )
    return [
        sys.executable,
        *launcher,
        "-m",
        "feedline",
        "run",
        "-q",
        "-f",
        "--strict",
        "-o",
        str(run),
        *options,
        *program,
    ]


@contextmanager
def out_folder() -> Iterator[Path]:
    """Make the folder for ``{out}`` of a training that may write anywhere, removed after it."""
    with tempfile.TemporaryDirectory(prefix="feedline-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def fill_placeholders(word: str, words: Mapping[str, str]) -> str:
    """Replace the placeholders of an argument."""
    for name, value in words.items():
        word = word.replace(name, value)
    return word


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, to end the processes it started.

    Raises:
        SystemExit: 128 + the signal's number.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    with suppress(ValueError):  # not in the main thread
        before = {
            number: signal.signal(number, end)
            for number in _SIGNALS
            if signal.getsignal(number) is signal.SIG_DFL
        }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
