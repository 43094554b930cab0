"""CPU, pressure, memory and shared memory: the real files of this machine, and made-up ones for the
arithmetic.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from feedline.profiler import masks
from feedline.profiler.samplers.machine import MachineCpu, MachineMemory, Pressure, SharedMemory
from feedline.profiler.samplers.sampler import _Swap

Write = Callable[[str, str], Path]


def burn(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def test_cpu_that_this_process_uses_is_in_the_machines_share() -> None:
    source = MachineCpu()
    assert source.probe() is None
    begin = time.perf_counter()

    burn(0.3)

    busy_s = source.read()["cpu/machine"] * (time.perf_counter() - begin) * (os.cpu_count() or 1)
    assert busy_s > 0.25


def test_cpu_shares_leave_out_idle_and_iowait_and_guests_twice(made_up: Write) -> None:
    proc = made_up("stat", "cpu  100 0 100 1000 50 0 0 0 40 0\ncpu0 1 1 1\n")
    source = MachineCpu(str(proc))
    assert source.probe() is None

    made_up("stat", "cpu  120 5 110 1040 60 3 2 10 60 0\ncpu0 1 1 1\n")

    assert source.read() == pytest.approx({"cpu/machine": 0.4, "cpu/steal": 0.1})


def test_cpus_outside_the_affinity_mask_are_not_in_its_share(made_up: Write) -> None:
    proc = made_up(
        "stat",
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n",
    )
    source = MachineCpu(str(proc), allowed=[1])
    assert source.probe() is None

    made_up(
        "stat",
        "cpu  90 0 0 110 0 0 0 0 0 0\ncpu0 10 0 0 90 0 0 0 0 0 0\ncpu1 80 0 0 20 0 0 0 0 0 "
        "0\nintr 5\n",
    )

    assert source.read() == pytest.approx(
        {"cpu/machine": 0.45, "cpu/steal": 0.0, "cpu/allowed": 0.8}
    )


def test_a_proc_without_stat_makes_the_source_absent_with_its_path(tmp_path: Path) -> None:
    absent = masks.path(tmp_path / "stat")
    assert MachineCpu(str(tmp_path)).probe() == f"{absent}: No such file or directory"


def pressure(made_up: Write, kind: str, some: int, full: int) -> str:
    lines = [
        f"{name} avg10=0.00 avg60=0.00 avg300=0.00 total={total}"
        for name, total in (("some", some), ("full", full))
    ]
    return str(made_up(f"pressure/{kind}", "\n".join(lines) + "\n"))


def test_pressure_is_the_share_of_time_stalled(made_up: Write, time_is) -> None:
    for kind in ("cpu", "io", "memory"):
        proc = pressure(made_up, kind, 1_000_000, 500_000)
    source = Pressure(proc)
    assert source.probe() is None

    time_is.advance(2.0)
    pressure(made_up, "io", 2_500_000, 1_000_000)

    read = source.read()
    assert read["pressure/io_some"] == pytest.approx(0.75)
    assert read["pressure/io_full"] == pytest.approx(0.25)
    assert read["pressure/memory_some"] == 0.0


def test_full_pressure_of_the_cpu_is_not_given_as_it_means_nothing_for_a_machine(
    made_up: Write,
) -> None:
    for kind in ("cpu", "io", "memory"):
        proc = pressure(made_up, kind, 1, 1)
    source = Pressure(proc)

    assert source.probe() is None

    assert "pressure/cpu_some" in source.units
    assert "pressure/cpu_full" not in source.units


def test_one_pressure_file_that_is_missing_is_named_and_the_others_are_read(made_up: Write) -> None:
    pressure(made_up, "cpu", 1, 1)
    proc = pressure(made_up, "memory", 1, 1)
    source = Pressure(proc)

    assert source.probe() is None

    assert source.missing == {
        "pressure/io": f"{masks.path(f'{proc}/pressure/io')}: No such file or directory"
    }
    assert set(source.units) == {
        "pressure/cpu_some",
        "pressure/memory_some",
        "pressure/memory_full",
    }


def test_real_pressure_is_a_share() -> None:
    source = Pressure()
    why = source.probe()
    if why:
        pytest.skip(f"this kernel does not tell pressure: {why}")
    time.sleep(0.05)

    read = source.read()

    assert set(read) == set(source.units)
    assert all(0.0 <= share <= 1.0 for share in read.values())


def test_memory_used_and_available_are_all_there_is() -> None:
    source = MachineMemory()
    assert source.probe() is None

    read = source.read()

    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert source.describe() == {"memory_bytes": total}
    assert read["memory/used"] + read["memory/available"] == total
    assert 0 < read["memory/available"] < total


def test_an_old_kernel_without_an_estimate_of_available_memory_makes_the_source_absent(
    made_up: Write,
) -> None:
    proc = made_up("meminfo", "MemTotal:       16000000 kB\nMemFree:        9000000 kB\n")

    assert (
        MachineMemory(str(proc)).probe() == "ValueError: *** has no MemAvailable"
    )  # a folder of ours stands for /proc here


def test_a_file_in_shared_memory_takes_from_what_is_free() -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("/dev/shm is not a file system of its own here")
    source = SharedMemory()
    assert source.probe() is None
    before = source.read()
    path = Path(f"/dev/shm/feedline-test-{os.getpid()}")
    try:
        path.write_bytes(bytes(8 << 20))
        after = source.read()
    finally:
        path.unlink()

    assert before["shm/free"] - after["shm/free"] == pytest.approx(8 << 20, rel=0.25)
    assert after["shm/size"] == before["shm/size"] >= before["shm/free"]


def test_pages_that_come_back_from_swap_are_a_rate_in_bytes(made_up: Write) -> None:
    proc = made_up("vmstat", "pgpgin 5\npswpin 100\npswpout 7\n")
    source = _Swap(str(proc))
    assert source.probe() is None
    time.sleep(0.05)

    made_up("vmstat", "pgpgin 5\npswpin 200\npswpout 7\n")

    assert 0 < source.read()["memory/swapped_in"] <= 100 * os.sysconf("SC_PAGE_SIZE") / 0.05


def test_a_kernel_without_swap_is_absent_with_the_reason(made_up: Write) -> None:
    assert "no swap" in (_Swap(str(made_up("vmstat", "pgpgin 5\n"))).probe() or "")
    assert _Swap().probe() is None
