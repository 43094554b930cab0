"""A trial of a training changes no file but its own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import LANDLOCK

from feedline.cli.verify import write_guard

pytestmark = LANDLOCK

TRIES = {
    "overwrite": "open('old.txt', 'w').write('new')",
    "append": "open('old.txt', 'a').write('new')",
    "truncate": "__import__('os').truncate('old.txt', 0)",
    "by a symbolic link": "import os; os.symlink(os.path.abspath('old.txt'), 'own/link'); "
    "open('own/link', 'w')",
    "by a hard link": "import os; os.link('old.txt', 'own/link'); open('own/link', "
    "'w').write('new')",
    "by its number of an open file": 'import os; open(f\'/proc/self/fd/{os.open("old.txt", '
    "os.O_RDONLY)}', 'w')",
    "by mapping it": "import mmap; mmap.mmap(open('old.txt', 'r+b').fileno(), 0)[:3] = b'new'",
    "remove": "__import__('os').remove('old.txt')",
    "replace": "__import__('os').replace('own/new.txt', 'old.txt')",
    "move away": "__import__('os').rename('old.txt', 'own/old.txt')",
    "remove the folder": "__import__('shutil').rmtree('kept')",
    "by a shell": "__import__('subprocess').run('rm -r kept; : > old.txt', shell=True, check=True)",
    "by torch, which opens files in C++": "__import__('torch').save({}, 'old.txt')",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "last.pt").write_text("weights")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "new.txt").write_text("own")
    (tmp_path / "old.txt").write_text("old")
    return tmp_path


def run(folder, code):
    guard = [sys.executable, "-I", write_guard.__file__, str(folder / "own"), "/dev", "--"]
    environment = {
        **os.environ,
        "TMPDIR": str(folder / "own"),
    }  # torch imports dill where it is installed, which wants one
    return subprocess.run(
        [*guard, sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("way", TRIES)
def test_nothing_outside_its_folders_can_be_changed(folder, way):
    before = contents(folder)

    done = run(folder, TRIES[way])

    assert done.returncode != 0
    assert (
        "Permission" in done.stderr
        or "cross-device" in done.stderr
        or "cannot be opened" in done.stderr
    ), done.stderr
    assert contents(folder) == before


@pytest.mark.skipif(
    write_guard.version() < 6, reason="this kernel's Landlock does not restrict signals"
)
def test_other_processes_cannot_be_ended(folder):
    other = subprocess.Popen(["sleep", "60"])
    try:
        done = run(folder, f"import os; os.kill({other.pid}, 9)")

        assert "PermissionError" in done.stderr and other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert (
        run(
            folder,
            "import os; pid = os.fork(); pid or __import__('time').sleep(60); os.kill(pid, 9); "
            "print(os.wait()[1])",
        ).stdout
        == "9\n"
    )


def test_a_trial_does_not_outlive_a_killed_command(folder):
    trial = [
        sys.executable,
        "-I",
        write_guard.__file__,
        str(folder / "own"),
        "/dev",
        "--",
        "/bin/sleep",
        "60",
    ]
    code = f"""
import os, subprocess, time
print(subprocess.Popen({trial}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)
time.sleep(1)
os.kill(os.getpid(), 9)
"""
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)

    until = time.monotonic() + 20
    while time.monotonic() < until and is_alive(pid):
        time.sleep(0.05)
    assert not is_alive(pid)


def is_alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_its_own_folders_and_all_reading_are_free(folder):
    done = run(
        folder,
        "import shutil; shutil.copy('kept/last.pt', 'own/copy.pt'); open('/dev/null', "
        "'w').write('x'); print(open('old.txt').read())",
    )

    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    assert (folder / "own" / "copy.pt").read_text() == "weights"


def test_a_folder_that_does_not_exist_ends_before_the_command(folder):
    guard = [
        sys.executable,
        "-I",
        write_guard.__file__,
        str(folder / "gone"),
        "--",
        sys.executable,
        "-c",
        "print('ran')",
    ]
    done = subprocess.run(guard, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (write_guard._UNAVAILABLE, "")
    assert Path(write_guard.__file__).read_text().count("import feedline") == 0
