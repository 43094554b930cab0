"""Memory of a process and of those below it, of real ones, and the limits of control groups."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from feedline.profiler import message
from feedline.profiler.message import id_of
from feedline.profiler.samplers.cgroup import CgroupMemory
from feedline.profiler.samplers.private_memory import PrivateMemory

MB = 1 << 20
Write = Callable[[str, str], Path]


@pytest.fixture
def source():
    source = PrivateMemory()
    assert source.probe() is None
    return source


def forked(reads: bool):
    """A child that waits, after it has written to (or has only got) 64 MB of its parent's."""
    held = bytearray(os.urandom(1) * (64 * MB))
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        if reads:
            for at in range(0, len(held), 4096):
                held[at] = 1
        os.write(done, b"x")
        signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(done)
    return child, held


def of_children(source):
    source._due_ns = 0
    values = source.read()
    return values.get("memory/children", 0), *(
        values.get(f"memory/children_{name}", 0) / MB for name in ("private", "anonymous")
    )


@pytest.mark.parametrize("copies", [True, False], ids=["copies", "shares"])
def test_what_a_forked_child_copies_is_private_and_what_it_shares_is_not(source, copies):
    before = of_children(source)  # the tests' own
    child, held = forked(copies)
    try:
        number, private, anonymous = (
            now - then for now, then in zip(of_children(source), before, strict=True)
        )
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert number == 1 and anonymous >= 60
    assert private >= 60 if copies else private < 48
    assert len(held) == 64 * MB


def test_the_main_process_grows_by_what_it_keeps(source):
    before = source.read()["memory/main"]
    held = os.urandom(1) * (64 * MB)
    after = source.read()["memory/main"]

    assert 60 * MB < after - before < 80 * MB
    assert len(held) == 64 * MB


def test_processes_below_are_looked_at_rarely(source):
    assert "memory/children" in source.read()
    assert "memory/children" not in source.read()


@pytest.fixture
def v2(made_up: Write) -> Write:
    """A machine with version 2; the process is in /job/rank0, and /job has the limit."""
    made_up("proc/self/cgroup", "0::/job/rank0\n")
    made_up(
        "proc/self/mountinfo",
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
    )
    for group in ("", "job/", "job/rank0/"):
        made_up(f"sys/fs/cgroup/{group}memory.stat", "anon 3000\nfile 9000\nshmem 500\n")
    made_up("sys/fs/cgroup/job/rank0/memory.max", "max\n")
    made_up("sys/fs/cgroup/job/memory.max", "8000\n")
    return made_up


def test_the_smallest_limit_counts_and_files_in_the_page_cache_do_not(v2: Write, tmp_path: Path):
    source = CgroupMemory(tmp_path)

    assert source.probe() is None
    assert source.read() == {"cgroup/memory": 3500.0, "cgroup/memory_limit": 8000.0}


def test_without_a_limit_nothing_is_sampled(v2: Write, tmp_path: Path):
    v2("sys/fs/cgroup/job/memory.max", "max\n")

    assert id_of(CgroupMemory(tmp_path).probe()) == message.NO_MEMORY_LIMIT


def test_version_1_has_its_own_names(made_up: Write, tmp_path: Path):
    made_up("proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/elsewhere\n0::/\n")
    made_up(
        "proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    )
    made_up("sys/fs/cgroup/memory/memory.stat", "total_rss 1\n")
    made_up("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    made_up("sys/fs/cgroup/memory/job/memory.stat", "rss 7\ntotal_rss 70\ntotal_shmem 5\n")
    made_up("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096\n")
    source = CgroupMemory(tmp_path)

    assert source.probe() is None
    assert source.read() == {"cgroup/memory": 75.0, "cgroup/memory_limit": 4096.0}
