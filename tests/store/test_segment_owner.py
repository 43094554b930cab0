"""Each process has a segment's file of its own, and the next worker continues that of one that has
ended, also on file systems without locks (Lustre without -o flock, NFS without its daemon).
"""

import errno
import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from feedline.profiler import proc
from feedline.profiler.events import Stage
from feedline.profiler.files import owned
from feedline.profiler.files.single import PART
from feedline.profiler.store.layout import RECORDS_AT, page_of
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment

MAIN = {"role": "main"}
NO_LOCKS = """
import errno, fcntl, os, signal, sys
from pathlib import Path
from feedline.profiler.store.segment import Segment

def refused(fd, how):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = refused
path = Path(sys.argv[1])
"""
WORKER = """
segment = Segment(path, {"role": "main"})
for number in range(3):
    segment.add(3, number, 1, source=segment.name_id("of the first"))
print(segment.path.name, flush=True)
sys.stdin.read()
"""
#: Starts workers at once, and again once they were killed; prints who got which file.
CROWD = """
for _ in range(20):
    children, (come, start), (told, tell) = [], os.pipe(), os.pipe()
    for _ in range(6):
        children.append(os.fork())
        if not children[-1]:
            os.close(start)
            os.read(come, 1)
            segment = Segment(path, {"role": "main"})
            segment.add(3, 1, 1)
            os.write(tell, segment.path.name.encode() + b" ")
            signal.pause()
    os.close(start)
    os.close(come)
    names = b""
    while names.count(b" ") < len(children):
        names += os.read(told, 1000)
    print(names.decode(), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "segments" / "main.seg"


@pytest.fixture
def no_locks(monkeypatch):
    def refused(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)


@contextmanager
def worker(path):
    """Another process that has written three records."""
    process = subprocess.Popen(
        [sys.executable, "-c", NO_LOCKS + WORKER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == f"{path.name}\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def left_by(path, owner):
    """Make a file as the process that its header names has left it."""
    owned.ensure(path.parent)
    owned.write(path.parent, path.name, page_of({**MAIN, **owner}).ljust(RECORDS_AT, b"\0"))


def test_without_locks_the_file_of_an_ended_worker_is_continued(path, no_locks):
    with worker(path):
        pass
    segment = Segment(path, MAIN)
    segment.add(Stage.READ, 3, 1, source=segment.name_id("of the second"))

    process = read_segment(path)

    assert segment.path == path
    assert process.records["start"].tolist() == [0, 1, 2, 3]
    assert process.names == {1: "of the first", 2: "of the second"}
    assert not [name for name in os.listdir(path.parent) if name.startswith(PART)]
    segment.close()


def test_without_locks_the_file_of_a_live_worker_is_left_to_it(path, no_locks):
    with worker(path):
        segment = Segment(path, MAIN)
        assert segment.path.name == "main.1.seg"
        segment.close()

    assert len(read_segment(path).records) == 3


def test_without_locks_workers_that_start_at_once_share_no_file(path):
    done = subprocess.run(
        [sys.executable, "-c", NO_LOCKS + CROWD, path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    rounds = [line.split() for line in done.stdout.splitlines()]
    assert len(rounds) == 20
    for names in rounds:
        assert len(set(names)) == 6
    files = list(path.parent.glob("main*.seg"))
    assert len(files) <= 12
    assert sum(len(read_segment(file).records) for file in files) == 20 * 6


def test_without_locks_a_number_that_another_process_got_since_does_not_keep_the_file(
    path, no_locks
):
    own = os.getpid()
    started = proc.started(own)
    for since, name in ((started - 1, "main.seg"), (started, "main.1.seg")):
        left_by(path, {"owner": {"pid": own, "started": since, "home": proc.home()}})
        segment = Segment(path, MAIN)
        assert segment.path.name == name
        segment.close()


@pytest.mark.parametrize(
    "owner",
    [
        {},
        {"owner": {"pid": "PID", "started": 1, "home": "another machine"}},
        {"owner": {"pid": "PID", "started": 1, "home": ""}},
        {"owner": {"pid": "17", "started": 1, "home": "HERE"}},
        {"owner": {"pid": 1 << 80, "started": 1, "home": "HERE"}},
        {"owner": {"home": "HERE"}},
        {"owner": None},
    ],
)
def test_without_locks_a_file_whose_process_cannot_be_asked_for_is_left_alone(
    path, no_locks, owner
):
    with worker(path.with_name("other.seg")) as ended:
        pass
    given = {"PID": ended.pid, "HERE": proc.home()}
    if owner.get("owner"):
        owner = {"owner": {key: given.get(said, said) for key, said in owner["owner"].items()}}
    left_by(path, owner)
    before = path.read_bytes()
    segment = Segment(path, MAIN)

    assert segment.path.name == "main.1.seg"
    assert path.read_bytes() == before
    segment.close()
