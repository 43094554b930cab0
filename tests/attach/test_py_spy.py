"""With py-spy, the same is seen as when feedline reads stacks itself."""

import subprocess

import pytest
from attach.attaching import other_python, python_of

from feedline.analysis.explain.attached import Attached
from feedline.profiler.attach import py_spy
from feedline.profiler.attach.memory_reader import OtherPython, _SamePython
from feedline.profiler.attach.watch import watch
from feedline.profiler.attach.watched import WatchedProcess

pytestmark = pytest.mark.skipif(py_spy.program() is None, reason="py-spy is not installed")
#: Starts a program that counts processes anew, as in a container.
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")


def needed(version: str) -> str:
    """A Python of this version; where there is none, the test is skipped."""
    python = python_of(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    return python


def check_threads(process: WatchedProcess) -> None:
    """One thread was seen in ``loop``, the main one, and one in ``beside``."""
    main, (other,) = process.main_thread, [one for one in process.threads if not one.is_main]

    assert main is not None and main.number == process.pid
    functions = [[frame.function for frame in one.last] for one in (main, other)]
    assert "loop" in functions[0] and "beside" in functions[1]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("version", ["3.9", "3.10"])
def test_threads_of_a_python_before_3_11_are_seen(version, method, start):
    program = start("threads.py", method, python=[needed(version)])

    watched = watch(program.pid, 2)

    assert watched.reader == "py-spy" and len(watched.processes) == 2
    for process in watched.processes:
        check_threads(process)


def test_threads_are_found_from_outside_their_pid_namespace(start):
    try:
        allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("no PID namespace can be made here")
    python = other_python()
    if python is None:
        pytest.skip("there is no other Python here")
    program = start("threads.py", "fork", python=[*NAMESPACE, python])

    watched = watch(program.pid, 2)

    assert watched.reader == "py-spy" and len(watched.processes) == 2
    for process in watched.processes:
        check_threads(process)
        assert all(thread.switches for thread in process.threads)  # of its number here


@pytest.mark.long
def test_another_python_is_read_by_py_spy(start, monkeypatch):
    def refuses(self: object, pid: int) -> int:
        raise OtherPython

    monkeypatch.setattr(_SamePython, "begin_in", refuses)

    watched = watch(start("slow_dataset.py", 1, "fork", 60, 5).pid, 8)
    report = Attached.of(watched).report

    assert report.reader == "py-spy"
    assert report.limit.startswith("Input-bound")
    assert any(finding.message.startswith("tokenize() takes") for finding in report.findings)
    assert [process.name for process in report.processes] == ["the main process", "worker 0"]
