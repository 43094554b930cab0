"""Memory of a process and of those below it, of real ones, and the limits of control groups."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from feedline.analysis.text.formatting import gauge_value
from feedline.profiler import message
from feedline.profiler.message import id_of
from feedline.profiler.samplers import processes
from feedline.profiler.samplers.cgroup import CgroupMemory, MemoryEvents
from feedline.profiler.samplers.gauge_reader import read_gauges
from feedline.profiler.samplers.processes import PrivateMemory, WorkerMemory
from feedline.profiler.samplers.sampler import Sampler

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


def test_children_that_have_ended_and_were_not_waited_for_hold_nothing(source):
    """Programs leave some behind; they do not multiply what the others hold."""
    child, held = forked(reads=True)
    ended = [os.fork() for _ in range(2)]
    try:
        if 0 in ended:
            os._exit(0)
        for pid in ended:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with_them = of_children(source)
        for pid in ended:
            os.waitpid(pid, 0)
        without = of_children(source)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert with_them == pytest.approx(without, rel=0.02)
    assert len(held) == 64 * MB


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


def test_small_objects_are_blocks_and_large_ones_are_not(source):
    def blocks():
        source._blocks_due_ns = 0
        return source.read()["memory/main_blocks"]

    gc.collect()  # or what other tests left is collected meanwhile
    before = blocks()
    objects = [[number] for number in range(100_000)]
    with_objects = blocks()
    pieces = [bytes(10_000) for _ in range(100_000 // 10_000)]
    with_pieces = blocks()

    assert 290_000 < with_objects - before < 310_000  # a list, its item's place, and the item
    assert abs(with_pieces - with_objects) < 1000
    assert len(objects) == 100_000 and len(pieces) == 10


def test_figures_that_pyplot_keeps_are_counted(source):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    before = source.read()["memory/figures"]
    kept, closed = pyplot.figure(), pyplot.figure()
    pyplot.close(closed)

    assert before == 0.0 and source.read()["memory/figures"] == 1.0
    assert source.units["memory/figures"] == "figures"
    pyplot.close(kept)


def test_blocks_are_those_of_the_process_that_asks():
    source = PrivateMemory(os.getppid())

    assert source.probe() is None
    assert "memory/main_blocks" not in {*source.units, *source.read()}


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


def counted(write: Write, kills: int, machine: int, hits: int) -> MemoryEvents:
    """What a machine with version 2 has counted."""
    write("sys/fs/cgroup/job/rank0/memory.events", f"low 0\noom 9\noom_kill {kills}\n")
    write("sys/fs/cgroup/job/memory.events", f"max {hits}\noom_kill 70\n")
    root = write("proc/vmstat", f"nr_free_pages 5\noom_kill {machine}\n")
    return MemoryEvents.now(root)


def test_kills_are_those_of_the_own_group_and_hits_those_of_the_smallest_limit(v2: Write):
    before = counted(v2, 2, 40, 5)

    assert counted(v2, 3, 44, 9).since(before) == {
        "kills": 1,
        "machine_kills": 4,
        "limit_hits": 4,
        "limit_bytes": 8000,
    }


def test_what_the_kernel_does_not_count_is_left_out(made_up: Write, tmp_path: Path):
    made_up("proc/self/cgroup", "0::/\n")

    assert MemoryEvents.now(tmp_path).since(MemoryEvents()) == {}


def test_version_1_counts_in_files_of_its_own(made_up: Write, tmp_path: Path):
    made_up("proc/self/cgroup", "4:memory:/job\n")
    made_up(
        "proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    )
    made_up("sys/fs/cgroup/memory/job/memory.stat", "rss 7\n")
    made_up("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096\n")
    made_up("sys/fs/cgroup/memory/job/memory.failcnt", "12\n")
    made_up(
        "sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )

    assert MemoryEvents.now(tmp_path) == MemoryEvents(3, None, 4096, 12)


def test_only_shares_have_the_unit_of_shares(source):
    matplotlib = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    matplotlib.figure()
    values = source.read()
    matplotlib.close("all")

    assert {"memory/main_blocks", "memory/children", "memory/figures"} <= values.keys()
    assert all(value <= 1 for name, value in values.items() if source.units[name] == "1")
    assert all(gauge_value(2.0, source.units[name]) != "200.0 %" for name in values)


def test_a_worker_that_grows_is_read_until_it_ends(child):
    worker = child("""
        import sys
        print("ready", flush=True)
        held = [bytearray(b"x" * (64 << 20)) for _ in sys.stdin.readline().split()]
        print("grown", flush=True)
        sys.stdin.readline()
    """)
    source = WorkerMemory()
    assert source.probe() is None and source.read() == {}
    source.watch(0, [worker])
    before = source.read()["memory/loader0-worker0"]

    worker.stdin.write("x\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "grown\n"
    after = source.read()["memory/loader0-worker0"]

    assert 60 * MB < after - before < 80 * MB
    worker.kill()
    worker.wait()
    assert source.read() == {}


def test_a_gauge_that_comes_later_is_in_the_file(tmp_path: Path):
    source = WorkerMemory()
    sampler = Sampler(tmp_path / "gauges.bin", [source])
    sampler.prepare()
    sampler.tick()
    source.watch(1, [multiprocessing.current_process()])
    sampler.tick()
    sampler._close()

    gauges = read_gauges(tmp_path / "gauges.bin")

    assert gauges.names == [("memory/loader1-worker0", "B")]
    assert len(gauges.value) == 1 and gauges.value[0] > MB


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_only_a_worker_that_a_sigkill_ended_was_killed(number):
    worker = multiprocessing.get_context("fork").Process(target=signal.pause)
    worker.start()
    source = WorkerMemory()
    source.watch(0, [worker])
    assert source.killed() == 0

    os.kill(worker.pid, number)
    worker.join()

    assert source.killed() == (worker.pid if number == signal.SIGKILL else 0)
    assert source.killed({worker.pid}) == 0


def test_a_loader_that_starts_in_a_handler_does_not_wait_for_the_thread_that_it_interrupted(
    monkeypatch,
):
    """A handler makes a loader, as one that saves a checkpoint may, while another is noted."""
    monkeypatch.setattr(processes, "_PATIENCE_S", 0.05)
    source, worker = WorkerMemory(), multiprocessing.current_process()

    class Units(dict):
        def __setitem__(self, name, unit):
            super().__setitem__(name, unit)
            if name == "memory/loader0-worker0":
                signal.raise_signal(signal.SIGUSR1)

    source.units = Units()
    came = []

    def handler(*_):
        inside = threading.Thread(target=lambda: (source.watch(1, [worker]), source.read()))
        inside.daemon = True
        inside.start()
        inside.join(10)
        came.append(inside.is_alive())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        source.watch(0, [worker])
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert came == [False]
    assert list(source.read()) == ["memory/loader0-worker0"]
