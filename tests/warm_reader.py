"""A Python that has read a run and waits; what only reads is a fork of it, and spares the second
that its imports and templates take.

Programs of a warm Python (warm_python.py) ask it: ``feedline run`` for the report at its end, and
commands that record nothing.
"""

import contextlib
import gc
import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

RUN = Path(__file__).parent / "golden" / "runs" / "loader"
COMMANDS = (("report",), ("ranks",), ("scale",), ("ingest",), ("converge", "advise"))
MOST_S = 60  # of CPU, for one of them: what never ends is killed


def reads(command: Sequence[object]) -> bool:
    """Whether ``python COMMAND`` is feedline, and trains nothing."""
    words = [str(word) for word in command]
    return (
        words[:2] == ["-m", "feedline"]
        and any(tuple(words[2 : 2 + len(one)]) == one for one in COMMANDS)
        and "--" not in words
    )


def listen() -> socket.socket:
    """Where a reader is asked: a socket whose name no file system has."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0feedline reader {os.getpid()}")
    listening.listen()
    return listening


def ask(address: bytes, task: dict[str, object], out: int, err: int) -> int:
    """Have a task done in a fork of the reader, with these descriptors as its outputs.

    Returns its exit code.
    """
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        socket.send_fds(asked, [b"."], [out, err])
        asked.sendall(json.dumps(task).encode())
        asked.shutdown(socket.SHUT_WR)
        return int(asked.makefile().read())


def report_at(address: bytes) -> None:
    """From now on, the report at the end of a recording in this process, or in a fork of it, is
    made by the reader.
    """
    run = subprocess.run

    def run_or_ask(command: Any, *args: Any, **options: Any) -> Any:
        if (
            command[0] != sys.executable
            or "-c" not in command
            or "from feedline.__main__ import main" not in command[-1]
        ):
            return run(command, *args, **options)
        task = {
            "command": ["-c", command[-1]],
            "folder": options["cwd"],
            "environment": options["env"],
        }
        return CompletedProcess(command, ask(address, task, options["stdout"], 2))

    subprocess.run = run_or_ask


def next_task(listening: socket.socket) -> dict[str, Any]:
    """Read a run, then fork for each that asks. Returns in the forks, with the task."""
    parent, nowhere = os.getppid(), os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # the warm Python's own, whose end is seen by their end
        os.dup2(nowhere, descriptor)
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    connection = next_connection(listening, parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listening.close()
    descriptors = socket.recv_fds(connection, 1, 2)[1]
    task = json.load(connection.makefile())
    pid = os.fork()
    if pid != 0:
        connection.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        os._exit(0)
    connection.close()
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
    return {**task, "cpus": None, "out": descriptors[0], "err": descriptors[1]}


def next_connection(listening: socket.socket, parent: int) -> socket.socket:
    """Fork for each, and end with the parent. Returns in the forks."""
    listening.settimeout(10)
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            connection = listening.accept()[0]
            if os.fork() == 0:
                return connection
            connection.close()
    os._exit(0)


def warm_up() -> None:
    """Make every kind of report once, so that forks find everything imported and compiled."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = (
        "system"  # without a thread of its own: a fork would not have it
    )
    from feedline.__main__ import main

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run = shutil.copytree(RUN, Path(folder) / "run")
        main(["report", str(run), "--json", f"{folder}/report.json"])
    del sys.modules["feedline.__main__"]  # a fork that runs it as a program would be warned
    gc.collect()
    gc.freeze()
