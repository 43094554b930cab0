"""What cannot be watched is refused in one line with the way out, by a code of its own."""

import os
import subprocess
import sys
import time

import pytest

from feedline.__main__ import main
from feedline.profiler.attach import kernel, watch
from feedline.profiler.attach.memory_reader import MemoryReader

PYTHON = "import time; print('begun', flush=True); time.sleep(60)"


def said(capsys, pid: int) -> tuple[int, str]:
    code = main(["attach", str(pid), "--seconds", "1"])
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return code, lines[0]


@pytest.fixture
def sleeper():
    process = subprocess.Popen(
        [sys.executable, "-c", PYTHON], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout and process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_has_ended(capsys):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    code, line = said(capsys, ended.pid)

    assert code == 67
    assert f"there is no process {ended.pid} here" in line


def test_a_folder_for_what_cannot_be_seen_is_not_left(capsys, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "old").mkdir()

    for name in ("new", "old"):
        assert main(["attach", str(ended.pid), "-o", str(tmp_path / name)]) == 67

    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert "there is no process" in capsys.readouterr().err


def test_a_process_that_nobody_has_waited_for(capsys):
    ended = subprocess.Popen(["true"])
    time.sleep(0.5)

    assert said(capsys, ended.pid) == (
        67,
        f"feedline: process {ended.pid} has ended: name one that runs",
    )
    ended.wait()


def test_a_process_without_python(capsys):
    process = subprocess.Popen(["sleep", "60"])
    try:
        code, line = said(capsys, process.pid)
    finally:
        process.kill()
        process.wait()

    assert code == 67
    assert line.endswith("(sleep) does not run Python: name the training's process")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user(sleeper):
    program = (
        "import os, sys; from feedline.cli import commands; from feedline.__main__ import main; "
        "import feedline.profiler.attach.watch; os.setgid(65534); os.setuid(65534); "
        f"sys.exit(main(['attach', '{sleeper.pid}', '--seconds', '1']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")

    assert done.returncode == 71
    assert done.stderr == (
        f"feedline: process {sleeper.pid} belongs to user root: attach as that user, or as root "
        "with sudo\n"
    )
    assert sleeper.poll() is None


def test_a_child_that_must_not_be_read_is_left_out(sleeper, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    uses_python = kernel.uses_python

    def refuses(pid: int) -> bool:
        if pid == child.pid:
            raise PermissionError
        return uses_python(pid)

    monkeypatch.setattr(watch, "descendants", lambda pid: [child.pid])
    monkeypatch.setattr(kernel, "uses_python", refuses)
    try:
        assert main(["attach", "-q", str(sleeper.pid), "--seconds", "1"]) == 0
    finally:
        child.kill()
        child.wait()


def test_a_child_that_must_not_be_read_is_named_where_no_other_runs_python(capsys, monkeypatch):
    def refuses(pid: int) -> bool:
        if pid == os.getpid():
            raise PermissionError
        return False

    monkeypatch.setattr(watch, "descendants", lambda pid: [os.getpid()])
    monkeypatch.setattr(kernel, "uses_python", refuses)
    process = subprocess.Popen(["sleep", "60"])
    try:
        code, line = said(capsys, process.pid)
    finally:
        process.kill()
        process.wait()

    assert code == 71 and f"process {os.getpid()} " in line


def test_a_process_that_lives_is_not_said_to_have_ended(sleeper, capsys, monkeypatch):
    monkeypatch.setattr(MemoryReader, "threads", lambda self, pid: ())

    code, line = said(capsys, sleeper.pid)

    assert code == 67
    assert line.endswith(
        f"no stack of process {sleeper.pid} could be read: look at it for longer with --seconds"
    )


def test_py_spy_is_asked_for_where_another_python_runs(sleeper, capsys, monkeypatch, tmp_path):
    from feedline.profiler.attach import memory_reader
    from feedline.profiler.attach.memory_reader import OtherPython

    def refuses(self: object, pid: int) -> int:
        raise OtherPython

    monkeypatch.setattr(memory_reader._SamePython, "begin_in", refuses)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    code, line = said(capsys, sleeper.pid)

    assert code == 69
    assert "pip install 'feedline[attach]'" in line
