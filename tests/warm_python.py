"""A Python that has imported torch and waits; what a test runs in it is a fork of it, and spares the four seconds that the imports take.

Each program has a process, a ``__main__``, a folder, an environment, an exit code and an end of its own, as ``python PROGRAM`` has. What
differs: torch is there before feedline is. Tests of how things begin (import hooks, torchrun, signals, tracebacks) start a cold Python.
"""

import atexit
import contextlib
import faulthandler
import gc
import itertools
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, CompletedProcess, TimeoutExpired

#: torch.optim imports the second one when the first optimizer is made; the others read runs and write reports.
MODULES = ("torch", "torch._dynamo", "pyarrow.parquet", "msgspec", "jinja2")


class Program:
    """A program that ``WarmPython.start`` has started, with some of what ``subprocess.Popen`` has.

    Attributes:
        returncode: None until ``communicate`` has returned.
    """

    def __init__(self, python: "WarmPython", number: int, command: list[str], outputs: tuple[Path, Path], pid: int) -> None:
        self.number, self.pid = number, pid
        self.returncode: int | None = None
        self._python, self._command, self._outputs, self._asked = python, command, outputs, False

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and error, at its end. Of several programs, wait for one to its end before you wait for the next.

        Raises:
            subprocess.TimeoutExpired: it went on for longer than these seconds.
        """
        if not self._asked:
            self._python.tell({"wait": self.pid})
            self._asked = True
        if not self._python.has_answered(timeout):
            raise TimeoutExpired(self._command, timeout or 0.0)
        self.returncode = int(self._python.answer())
        self._python.ended(self)
        out, err = (file.read_text() for file in self._outputs)
        for file in self._outputs:
            file.unlink()
        return out, err

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """A signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class WarmPython:
    """Start programs with ``run`` or ``start``; ``close`` at the end. Not for threads.

    Args:
        modules: imported before programs begin.
    """

    def __init__(self, *modules: str) -> None:
        self._command = [sys.executable, __file__, *modules]
        self._server: subprocess.Popen[bytes] | None = None
        self._running: dict[int, Program] = {}

    def run(
        self, *command: object, folder: Path, environment: Mapping[str, str] = os.environ, cpus: int | None = None
    ) -> CompletedProcess[str]:
        """Run ``python COMMAND`` to its end, at most as long as pytest lets a test run. The arguments are those of ``start``."""
        program = self.start(*command, folder=folder, environment=environment, cpus=cpus)
        out, err = program.communicate()
        assert program.returncode is not None
        return CompletedProcess([str(part) for part in command], program.returncode, out, err)

    def start(self, *command: object, folder: Path, environment: Mapping[str, str] = os.environ, cpus: int | None = None) -> Program:
        """Start ``python COMMAND``.

        Args:
            command: a script or ``-m`` and a module, then arguments.
            folder: to run in.
            environment: the whole of it.
            cpus: how many of them it may use.
        """
        number = next(number for number in itertools.count() if number not in self._running)
        words, outputs = [str(part) for part in command], (folder / f".stdout{number}", folder / f".stderr{number}")
        places = {"folder": str(folder), "out": str(outputs[0]), "err": str(outputs[1])}
        self.tell({"command": words, **places, "environment": dict(environment), "cpus": cpus})
        self._running[number] = Program(self, number, words, outputs, int(self.answer()))
        return self._running[number]

    def close(self) -> None:
        """End it, and whatever its programs left running."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.communicate()
            self._server = None
            self._running.clear()

    def ended(self, program: Program) -> None:
        """One of its programs has."""
        self._running.pop(program.number, None)

    def tell(self, task: dict[str, object]) -> None:
        """Send a task, which gets an answer."""
        if self._server is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            # Unbuffered: has_answered asks the kernel.
            self._server = subprocess.Popen(self._command, stdin=PIPE, stdout=PIPE, bufsize=0, env=environment, start_new_session=True)
        assert self._server.stdin
        self._server.stdin.write(json.dumps(task).encode() + b"\n")

    def has_answered(self, seconds: float | None) -> bool:
        """Whether an answer comes within this time (None: at most as long as pytest lets a test run)."""
        assert self._server and self._server.stdout
        try:
            return bool(select.select([self._server.stdout], [], [], seconds)[0])
        except BaseException:  # a test that took too long: its programs go, and the next test gets a new server
            self.close()
            raise

    def answer(self) -> str:
        """The answer to the oldest task without one."""
        self.has_answered(None)
        assert self._server and self._server.stdout
        answer = self._server.stdout.readline()
        assert answer, "the warm Python ended"
        return answer.decode()


def next_program() -> list[str]:
    """Fork for each task from standard input and answer with the pid; for each that waits, with the exit code. Returns in the forks."""
    for line in sys.stdin:
        task = json.loads(line)
        if "wait" in task:
            print(os.waitstatus_to_exitcode(os.waitpid(task["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            settle(task)
            return task["command"]
        print(pid, flush=True)
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
    if task["environment"].get("PYTHONFAULTHANDLER"):
        faulthandler.enable()


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
