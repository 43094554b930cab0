"""A Python that has imported torch and waits; what a test runs in it is a fork of it, and spares the four seconds that the imports take.

Each program has a process, a ``__main__``, a folder, an environment, an exit code and an end of its own, as ``python PROGRAM`` has. What
differs: torch is there before feedline is. Tests of how things begin (import hooks, torchrun, signals, tracebacks) start a cold Python.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, CompletedProcess

#: torch.optim imports the second one when the first optimizer is made.
MODULES = ("torch", "torch._dynamo")


class WarmPython:
    """Start programs with ``run``; ``close`` at the end. Not for threads.

    Args:
        modules: imported before programs begin.
    """

    def __init__(self, *modules: str) -> None:
        self._command = [sys.executable, __file__, *modules]
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, *command: object, folder: Path, environment: Mapping[str, str] = os.environ, cpus: int | None = None
    ) -> CompletedProcess[str]:
        """Run ``python COMMAND`` to its end, at most as long as pytest lets a test run.

        Args:
            command: a script or ``-m`` and a module, then arguments.
            folder: to run in.
            environment: the whole of it.
            cpus: how many of them it may use.
        """
        words, (out, err) = [str(part) for part in command], (folder / ".stdout", folder / ".stderr")
        task = {"command": words, "folder": str(folder), "out": str(out), "err": str(err), "environment": dict(environment), "cpus": cpus}
        try:
            answer = self._ask(json.dumps(task))
        except BaseException:  # a test that took too long: its program goes, and the next test gets a new server
            self.close()
            raise
        done = CompletedProcess(words, int(answer), out.read_text(), err.read_text())
        for file in (out, err):
            file.unlink()
        return done

    def close(self) -> None:
        """End it, and whatever its programs left running."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.communicate()
            self._server = None

    def _ask(self, task: str) -> str:
        if self._server is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._server = subprocess.Popen(self._command, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True, text=True)
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(task + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the warm Python ended"
        return answer


def next_program() -> list[str]:
    """Fork for each task from standard input and answer with its exit code. Returns in the forks, with the command."""
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            settle(task)
            return task["command"]
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)


def settle(task: dict) -> None:
    """Take folder, environment, CPUs and standard files of a task."""
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["environment"])
    if task["cpus"]:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["cpus"]])
    for descriptor, path in enumerate((os.devnull, task["out"], task["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # the old one has read ahead


def become(command: list[str]) -> None:
    """Be ``python COMMAND``."""
    if command[0] == "-m":
        sys.argv[:] = command[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


def end() -> None:
    """Do what Python does at its end, but for taking torch apart, which would copy all of its memory first: 0.7 s."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    del sys.path[0]  # where this file is
    for module in sys.argv[1:]:
        __import__(module)
    gc.collect()
    gc.freeze()  # or the garbage collector of each fork would look at, and so copy, all of it
    try:
        become(next_program())
    except SystemExit as ended:
        if ended.code:
            raise
    end()
