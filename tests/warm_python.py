"""A Python that has imported torch and waits; what a test runs in it is a fork of it, and spares
the four seconds that the imports take.

Each program has a process, a ``__main__``, a folder, an environment, an exit code and an end of its
own, as ``python PROGRAM`` has. What differs: torch is there before feedline is, and reports are
made by forks of another such Python (warm_reader.py). Tests of how things begin (import hooks,
torchrun, signals, tracebacks) start a cold Python.
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
import warnings
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, CompletedProcess, TimeoutExpired

import warm_reader

#: torch.optim imports the second one when the first optimizer is made.
MODULES = ("torch", "torch._dynamo")


class Program:
    """A program that ``WarmPython.start`` has started, with some of what ``subprocess.Popen`` has.

    Attributes:
        returncode: None until ``communicate`` has returned.
    """

    def __init__(
        self,
        python: "WarmPython",
        number: int,
        command: list[str],
        outputs: tuple[Path, Path],
        pid: int,
    ) -> None:
        self.number, self.pid = number, pid
        self.returncode: int | None = None
        self._python, self._command, self._outputs, self._asked = python, command, outputs, False

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and error, at its end. Of several programs, wait for one to its end
        before you wait for the next.

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
        self,
        *command: object,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        cpus: int | None = None,
    ) -> CompletedProcess[str]:
        """Run ``python COMMAND`` to its end, at most as long as pytest lets a test run.

        The arguments are those of ``start``.
        """
        program = self.start(*command, folder=folder, environment=environment, cpus=cpus)
        out, err = program.communicate()
        assert program.returncode is not None
        return CompletedProcess([str(part) for part in command], program.returncode, out, err)

    def start(
        self,
        *command: object,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        cpus: int | None = None,
    ) -> Program:
        """Start ``python COMMAND``.

        Args:
            command: a script or ``-m`` and a module, then arguments.
            folder: to run in.
            environment: the whole of it.
            cpus: how many of them it may use.
        """
        number = next(number for number in itertools.count() if number not in self._running)
        words, outputs = (
            [str(part) for part in command],
            (folder / f".stdout{number}", folder / f".stderr{number}"),
        )
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
            self._server = subprocess.Popen(
                self._command,
                stdin=PIPE,
                stdout=PIPE,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        assert self._server.stdin
        self._server.stdin.write(json.dumps(task).encode() + b"\n")

    def has_answered(self, seconds: float | None) -> bool:
        """Whether an answer comes within this time (None: at most as long as pytest lets a test
        run).
        """
        assert self._server and self._server.stdout
        try:
            return bool(select.select([self._server.stdout], [], [], seconds)[0])
        except (
            BaseException
        ):  # a test that took too long: its programs go, and the next test gets a new server
            self.close()
            raise

    def answer(self) -> str:
        """The answer to the oldest task without one."""
        self.has_answered(None)
        assert self._server and self._server.stdout
        answer = self._server.stdout.readline()
        assert answer, "the warm Python ended"
        return answer.decode()


def next_program(reader: bytes) -> list[str]:
    """Fork for each task from standard input and answer with the pid; for each that waits, with the
    exit code. Returns in the forks.

    Args:
        reader: address of the one that makes reports.
    """
    for line in sys.stdin:
        task = json.loads(line)
        if "wait" in task:
            print(os.waitstatus_to_exitcode(os.waitpid(task["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            settle(task)
            if warm_reader.reads(task["command"]):
                exit_like(warm_reader.ask(reader, task, 1, 2))
            warm_reader.report_at(reader)
            return task["command"]
        print(pid, flush=True)
    os._exit(0)


def exit_like(code: int) -> None:
    """Leave with an exit code, or by the signal that it stands for."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def settle(task: dict) -> None:
    """Take folder, environment, CPUs and standard files of a task."""
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["environment"])
    if task["cpus"]:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["cpus"]])
    for descriptor, file in enumerate((os.devnull, task["out"], task["err"])):
        opened = (
            file if isinstance(file, int) else os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        )
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
    elif command[0] == "-c":
        sys.argv[:] = command[:1]
        warnings.simplefilter("ignore")  # as the report at the end of a recording is started
        exec(command[1], {"__name__": "__main__"})
    else:
        sys.argv[:] = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


def end() -> None:
    """Do what Python does at its end, but for taking torch apart, which would copy all of its
    memory first: 0.7 s.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(*modules: str) -> list[str]:
    """Be a warm Python, with a reader below it.

    Returns in the forks of either, with what to run.
    """
    listening = warm_reader.listen()
    if os.fork() == 0:
        task = warm_reader.next_task(listening)
        settle(task)
        return task["command"]
    reader = listening.getsockname()
    listening.close()
    for module in modules:
        __import__(module)
    gc.collect()
    gc.freeze()  # or the garbage collector of each fork would look at, and so copy, all of it
    return next_program(reader)


if __name__ == "__main__":
    del sys.path[0]  # where this file is
    try:
        become(serve(*sys.argv[1:]))
    except SystemExit as ended:
        if ended.code:
            raise
    end()
