"""The sampling thread: what it gives, what it costs, and that nothing that goes wrong in it reaches
the training.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import numpy as np
import pytest

from feedline.profiler import masks
from feedline.profiler.samplers import sampler as module
from feedline.profiler.samplers.gauge_file import _CHUNK_BYTES, legend_path
from feedline.profiler.samplers.gauge_reader import _read_legend, read_gauges
from feedline.profiler.samplers.sampler import Sampler

SAMPLE = """
    import sys, time
    from pathlib import Path
    from feedline.profiler.samplers.sampler import Sampler
    sampler = Sampler(Path(sys.argv[1]), period_s=0.01)
    sampler.start()
    sampler.ready.wait(10)
    time.sleep(0.3)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gauges.bin"


def test_this_machines_gauges_are_sampled_in_a_daemon_thread(path: Path) -> None:
    sampler = Sampler(path, period_s=0.02)
    sampler.start()
    time.sleep(0.3)
    sampler.stop()

    assert (sampler.name, sampler.daemon, sampler.is_alive()) == ("feedline-sampler", True, False)
    gauges = read_gauges(path)
    sampled = {name for number, (name, _) in enumerate(gauges.names) if number in gauges.gauge}
    assert sampled >= {
        "cpu/machine",
        "cpu/processes",
        "memory/available",
        "memory/processes",
        "shm/free",
    }
    counts = {"blocks", "figures", "processes"}
    assert {unit for _, unit in gauges.names} <= {"1", "B", "B/s", "s/s", "W", "Hz"} | counts
    assert np.all(np.isfinite(gauges.value))
    assert np.all(np.diff(gauges.time) >= 0)


def test_every_source_is_either_sampled_or_named_as_absent(path: Path) -> None:
    sampler = Sampler(path, period_s=0.02)
    sampler.start()
    time.sleep(0.2)
    sampler.stop()

    gauges = read_gauges(path)
    sampled = {
        name.split("/")[0]
        for number, (name, _) in enumerate(gauges.names)
        if number in gauges.gauge
    }
    for source in ("cpu", "cgroup", "pressure", "disk", "memory", "shm", "gpu"):
        present = any(
            name == source or (source == "gpu" and name.startswith("gpu")) for name in sampled
        )
        assert present != (source in sampler.absent), source
    assert _read_legend(path).absent == sampler.absent


def test_samples_are_a_period_apart(path: Path, counting) -> None:
    sampler = Sampler(path, [counting()], period_s=0.05)
    sampler.start()
    time.sleep(1.0)
    sampler.stop()

    gaps = np.diff(read_gauges(path).time)
    assert np.median(gaps) == pytest.approx(0.05e9, rel=0.2)


def test_a_run_shorter_than_a_period_has_one_sample(path: Path, counting) -> None:
    sampler = Sampler(path, [counting()], period_s=30)
    sampler.start()
    sampler.ready.wait(5)
    sampler.stop()

    assert read_gauges(path).value.tolist() == [1.0]


def test_a_source_that_is_absent_is_named_with_its_reason_and_the_others_are_sampled(
    path: Path, counting
) -> None:
    class Raises(counting):
        name = "raises"

        def prepare(self) -> str | None:
            raise PermissionError(13, "Permission denied", "/proc/secret")

    sampler = Sampler(path, [Raises(), counting()])
    sampler.prepare()
    sampler.tick()

    assert sampler.absent == {"raises": "/proc/secret: Permission denied"}
    assert _read_legend(path).absent == sampler.absent
    assert [name for name, _ in read_gauges(path).names] == ["counting/0"]


def test_a_source_that_fails_later_is_dropped_and_named_and_the_others_go_on(
    path: Path, counting
) -> None:
    class Other(counting):
        name = "other"

        def prepare(self) -> str | None:
            self.units = {"other/0": "1"}
            return None

    sampler = Sampler(path, [counting(fails_at=3), Other()])
    sampler.prepare()
    for _ in range(5):
        sampler.tick()

    gauges = read_gauges(path)
    assert gauges.value[gauges.gauge == 0].tolist() == [1.0, 2.0]
    assert gauges.value[gauges.gauge == 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert sampler.absent == {"counting": "no longer sampled: /proc/counting: Input/output error"}
    assert _read_legend(path).absent == sampler.absent


def test_a_full_file_doubles_the_period(path: Path, counting) -> None:
    sampler = Sampler(path, [counting(gauges=50)], period_s=1.0, max_bytes=_CHUNK_BYTES)
    sampler.prepare()
    assert sampler.period_s == 1.0

    for _ in range(_CHUNK_BYTES // (50 * 20) + 1):
        sampler.tick()

    assert sampler.period_s == 2.0
    assert path.stat().st_size <= _CHUNK_BYTES


def test_a_folder_that_does_not_exist_is_named_and_nothing_is_raised(
    tmp_path: Path, counting
) -> None:
    sampler = Sampler(tmp_path / "missing" / "gauges.bin", [counting()])
    sampler.start()
    assert sampler.ready.wait(5)
    sampler.stop()

    assert "No such file or directory" in sampler.absent["sampler"]
    assert "No such file or directory" in sampler.absent["sampler"]
    assert str(tmp_path) not in sampler.absent["sampler"]


def test_files_of_another_run_are_left_as_they_are(path: Path, counting) -> None:
    first = Sampler(path, [counting()])
    first.prepare()
    first.tick()
    before = path.read_bytes(), legend_path(path).read_bytes()

    second = Sampler(path, [counting(gauges=7)])
    second.start()
    assert second.ready.wait(5)
    second.stop()

    assert (path.read_bytes(), legend_path(path).read_bytes()) == before
    assert second.absent == {
        "sampler": masks.text(f"{path}: stopped sampling: {path}: File exists")
    }


def test_facts_that_cannot_be_had_are_named_and_cost_no_gauge(path: Path, counting) -> None:
    class Silent(counting):
        def describe(self) -> dict[str, object]:
            raise AttributeError("nvmlDeviceGetNothing")

    sampler = Sampler(path, [Silent()])
    sampler.prepare()
    sampler.tick()

    assert sampler.absent == {"facts of counting": "AttributeError: nvmlDeviceGetNothing"}
    assert read_gauges(path).value.tolist() == [1.0]


def test_where_no_thread_can_be_started_the_training_goes_on(
    path: Path, counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sampler = Sampler(path, [counting()])

    sampler.start()
    sampler.stop()

    assert "can't start new thread" in sampler.absent["sampler"]


def test_stopping_does_not_wait_for_a_driver_that_hangs(path: Path, counting) -> None:
    release = threading.Event()

    class Hangs(counting):
        def read(self) -> dict[str, float]:
            release.wait(30)
            return {}

    sampler = Sampler(path, [Hangs()], period_s=0.01)
    sampler.start()
    time.sleep(0.1)
    begin = time.perf_counter()
    sampler.stop()
    took = time.perf_counter() - begin
    release.set()
    sampler.join(5)

    assert took < module._JOIN_S + 0.2


def test_a_killed_process_leaves_what_it_sampled(
    path: Path, child: Callable[..., Popen[str]]
) -> None:
    process = child(SAMPLE, path)
    process.send_signal(signal.SIGKILL)
    process.wait()

    gauges = read_gauges(path)

    assert len(np.unique(gauges.time)) >= 10
    assert np.all(np.isfinite(gauges.value))
    assert "memory/available" in dict(gauges.names)


def test_a_run_that_is_going_on_can_be_read(path: Path, child: Callable[..., Popen[str]]) -> None:
    child(SAMPLE, path)
    before = len(read_gauges(path).time)
    time.sleep(0.2)

    assert 0 < before < len(read_gauges(path).time)


@pytest.fixture
def tiny_disk(small_disk: Callable[[int], Path]) -> Path:
    """A file system with room for two chunks and a bit."""
    return small_disk(2 * _CHUNK_BYTES + 32 * 1024)


def test_a_full_disk_ends_the_sampling_and_nothing_else(tiny_disk: Path, counting) -> None:
    sampler = Sampler(tiny_disk / "gauges.bin", [counting(gauges=100)], period_s=0.001)
    sampler.start()
    sampler.join(20)

    assert not sampler.is_alive()
    assert "No space left on device" in sampler.absent["sampler"]
    gauges = read_gauges(tiny_disk / "gauges.bin")
    assert len(gauges.time) > _CHUNK_BYTES // 20
    assert np.all(gauges.value > 0)
    assert _read_legend(tiny_disk / "gauges.bin").absent["sampler"] == sampler.absent["sampler"]


def test_a_disk_without_room_for_one_chunk_is_named(tiny_disk: Path, counting) -> None:
    free = os.statvfs(tiny_disk).f_bavail * os.statvfs(tiny_disk).f_frsize
    (tiny_disk / "filler").write_bytes(b"x" * (free - 16 * 1024))
    sampler = Sampler(tiny_disk / "gauges.bin", [counting()], period_s=0.001)
    sampler.start()
    sampler.join(20)

    assert "No space left on device" in sampler.absent["sampler"]
    assert {file.name for file in tiny_disk.iterdir()} <= {"filler", ".feedline"}


def test_a_forked_child_neither_samples_nor_writes(path: Path, counting) -> None:
    sampler = Sampler(path, [counting()])
    sampler.prepare()
    sampler.tick()
    before = path.read_bytes()

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sampler.tick()
            sampler.stop()
            status = 0
        finally:
            os._exit(status)

    assert os.waitpid(pid, 0)[1] == 0
    assert path.read_bytes() == before


BLOCKS_A_SIGNAL_AND_WAITS = """
    import os, signal, sys
    from pathlib import Path
    from feedline.profiler.samplers.sampler import Sampler
    sampler = Sampler(Path(sys.argv[1]), period_s=0.01)
    sampler.start()
    sampler.ready.wait(10)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    sys.exit(0 if signal.sigtimedwait({signal.SIGUSR1}, 5) else 1)
"""


def test_a_signal_that_the_training_waits_for_is_not_taken_by_the_thread(path: Path) -> None:
    program = [sys.executable, "-c", textwrap.dedent(BLOCKS_A_SIGNAL_AND_WAITS), path]
    no_other_threads = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }

    assert subprocess.run(program, env=no_other_threads, timeout=60).returncode == 0


def test_no_random_state_is_touched(path: Path) -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    sampler = Sampler(path, period_s=0.01)
    sampler.start()
    time.sleep(0.1)
    sampler.stop()

    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_tick_costs_less_than_a_millisecond_of_cpu(path: Path) -> None:
    sampler = Sampler(path)
    sampler.prepare()
    costs = []
    for _ in range(200):
        begin = time.thread_time_ns()
        sampler.tick()
        costs.append((time.thread_time_ns() - begin) / 1e6)

    assert (
        statistics.median(costs) < 1.0
    )  # aimed at: 0.5, and met; the rest is for a machine that is busy


def test_a_period_of_nothing_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="period_s is 0"):
        Sampler(path, [], period_s=0)
