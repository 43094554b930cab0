"""CPU and memory of real process trees."""

import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from feedline.profiler.files import owned
from feedline.profiler.samplers import processes
from feedline.profiler.samplers.processes import (
    _RESCAN_TICKS,
    ProcessTree,
    UnfollowedProcesses,
    descendants,
)
from feedline.profiler.samplers.source import OpenFile
from feedline.profiler.store import process_log

Start = Callable[..., "Popen[str]"]

BURN = """
    import sys, time
    print("ready", flush=True)
    sys.stdin.readline()
    while time.process_time() < 0.35:
        pass
    print("burned", flush=True)
    sys.stdin.readline()
"""
BURN_IN_A_CHILD = """
    import subprocess, sys
    print("ready", flush=True)
    sys.stdin.readline()
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.35: pass"])
    print("burned", flush=True)
    sys.stdin.readline()
"""
HOLD = """
    import sys
    held = b"x" * (96 << 20)
    print("ready", flush=True)
    sys.stdin.readline()
"""


def go_on(process: "Popen[str]") -> None:
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "burned\n"


@pytest.fixture
def probed() -> Iterator[ProcessTree]:
    source = ProcessTree()
    assert source.probe() is None
    yield source


def memory(source: ProcessTree) -> dict[str, float]:
    """The latest of each gauge, after as many readings as the rarest needs."""
    values: dict[str, float] = {}
    for _ in range(_RESCAN_TICKS):
        values.update(source.read())
    return values


def cpu_s(source: ProcessTree, begin: float) -> float:
    rate = source.read()["cpu/processes"]
    return rate * (time.perf_counter() - begin)


def test_cpu_of_a_child_counts(child: Start, probed: ProcessTree) -> None:
    process = child(BURN)
    begin = time.perf_counter()
    probed.read()

    go_on(process)

    assert cpu_s(probed, begin) > 0.25


def test_cpu_of_a_child_that_has_ended_counts_through_its_parent(
    child: Start, probed: ProcessTree
) -> None:
    process = child(BURN_IN_A_CHILD)
    begin = time.perf_counter()
    probed.read()

    go_on(process)

    assert cpu_s(probed, begin) > 0.3


def test_cpu_of_a_child_that_ends_during_a_reading_counts_once(tmp_path: Path) -> None:
    """The parent was read before it waited for the child, which is gone when it is its turn."""

    def write(pid: int, own: int, of_children: int) -> None:
        place = tmp_path / str(pid)
        (place / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        (place / "task" / str(pid) / "children").write_text("8" if pid == 7 else "")
        fields = ["R", *["0"] * 10, own, 0, of_children, 0, *["0"] * 6, 1, 1]
        (place / "stat").write_text(f"{pid} (python) {' '.join(map(str, fields))}")

    class Ends(OpenFile):
        def read(self) -> bytes:
            write(7, 10, 60_000)
            (tmp_path / "7" / "task" / "7" / "children").write_text("")
            raise ProcessLookupError

    write(7, 10, 0)
    write(8, 60_000, 0)
    source = ProcessTree(7, str(tmp_path))
    assert source.probe() is None
    source._stats[8] = Ends(str(tmp_path / "8" / "stat"))

    assert source.read()["cpu/processes"] == 0
    assert source.read()["cpu/processes"] == 0


def test_cpu_of_a_process_that_is_not_ours_does_not_count(child: Start) -> None:
    bystander, other = child(BURN), child(BURN)
    source = ProcessTree(pid=bystander.pid)
    assert source.probe() is None
    begin = time.perf_counter()

    go_on(other)

    assert cpu_s(source, begin) < 0.1


def test_memory_of_a_child_counts_and_goes_with_it(child: Start, probed: ProcessTree) -> None:
    before = memory(probed)
    process = child(HOLD)
    during = memory(probed)
    process.kill()
    process.wait()
    after = memory(probed)

    for name in ("memory/processes", "memory/processes_anonymous"):
        assert during[name] - before[name] > 96e6
        assert after[name] - before[name] < 48e6


def test_a_file_that_is_mapped_is_resident_but_not_anonymous(
    tmp_path: Path, probed: ProcessTree
) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(bytes(32 << 20))
    before = memory(probed)
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[at] for at in range(0, len(mapped), 4096))
        during = memory(probed)

    assert during["memory/processes"] - before["memory/processes"] > 30e6
    assert during["memory/processes_anonymous"] - before["memory/processes_anonymous"] < 8e6


def test_a_child_that_another_thread_started_is_found(probed: ProcessTree) -> None:
    started: list[Popen[bytes]] = []
    go, end = threading.Event(), threading.Event()

    def start_and_stay() -> None:
        started.append(Popen(["sleep", "60"], stdout=DEVNULL))
        go.set()
        end.wait(60)

    thread = threading.Thread(target=start_and_stay)
    thread.start()
    try:
        go.wait(10)
        for _ in range(_RESCAN_TICKS + 1):
            probed.read()
        assert started[0].pid in probed._stats
    finally:
        end.set()
        thread.join()
        started[0].kill()
        started[0].wait()


def test_both_ways_to_find_children_agree(child: Start) -> None:
    grandparent = child("""
        import subprocess, sys
        inner = subprocess.Popen(["sleep", "60"])
        print("ready", flush=True)
        sys.stdin.readline()
        inner.kill()
    """)
    slow = processes._children_by_parent("/proc")

    fast = descendants(grandparent.pid)
    (only,) = slow("/proc", grandparent.pid)

    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        pytest.skip("this kernel does not list children: there is only the slow way")
    assert fast == [only]
    assert {grandparent.pid, only} <= set(descendants(os.getpid()))
    assert grandparent.stdin
    grandparent.communicate("\n")


def test_a_child_that_has_ended_is_forgotten_and_its_file_closed(
    child: Start, probed: ProcessTree
) -> None:
    process = child(HOLD)
    probed.read()
    held = set(os.listdir("/proc/self/fd"))
    process.kill()
    process.wait()

    probed.read()

    assert process.pid not in probed._stats
    assert len(held) - len(os.listdir("/proc/self/fd")) >= 1


def test_a_pid_that_is_gone_makes_the_source_absent_with_its_path() -> None:
    process = Popen(["true"], stdin=PIPE)
    process.communicate()

    assert (
        ProcessTree(process.pid).probe() == f"/proc/{process.pid}/stat: No such file or directory"
    )


def test_where_half_of_the_descriptors_are_used_the_rest_is_the_programs() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 8, hard))
    try:
        files = [OpenFile("/proc/self/stat") for _ in range(20)]
        during = set(os.listdir("/proc/self/fd"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert all(file.read().startswith(str(os.getpid()).encode()) for file in files)
    assert len(during - before) <= 1 + (max(map(int, before)) + 8) // 2


@pytest.mark.parametrize(
    ("title", "way", "kept"),
    [
        ("python train.py --wandb-key 0123abcdsecretvalue", "none", ["train.py"]),
        (
            "python train.py --lr 0.1 -k x7Kq2Zp9",
            "masked",
            ["train.py", "--lr", "0.1", "-k", "***"],
        ),
        ("trainer: alice x7Kq2Zp9", "masked", ["trainer:", "***", "***"]),
        ("trainer: alice x7Kq2Zp9", "none", ["trainer:"]),
    ],
)
def test_a_title_in_place_of_the_command_line_is_masked_as_that_is(
    title: str, way: str, kept: list[str], tmp_path: Path
) -> None:
    owned.claim(tmp_path / "run", "run")
    torch = tmp_path / "libtorch_cpu.so"  # by which a process that uses torch is known
    torch.write_bytes(bytes(4096))
    program = (
        f"import mmap, time\nfile = open({str(torch)!r}, 'r+b')\n"
        "mapped = mmap.mmap(file.fileno(), 0)\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    source = UnfollowedProcesses(tmp_path / "run", way)
    with Popen(
        [title],
        executable=sys.executable,
        stdin=PIPE,
        stdout=PIPE,
        text=True,
        env={"PYTHONHOME": sys.base_prefix},
    ) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(program)
            process.stdin.close()
            assert process.stdout.readline() == "ready\n"
            source.read()
        finally:
            process.kill()

    named = process_log.read(tmp_path / "run")  # other tests' processes too
    assert [one.command for one in named if one.pid == process.pid] == [kept]
