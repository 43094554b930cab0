"""Disks: a real read that has to go to the disk, and made-up machines for choosing among them."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from feedline.profiler import masks, message
from feedline.profiler.message import id_of
from feedline.profiler.samplers.machine import Disk, _physical_disks

Write = Callable[[str, str], Path]
LINE = "   8       0 {name} 1 0 {sectors} 9 9 9 9 9 0 {busy_ms} 9 0 0 0 0 0 0\n"


def disk(
    made_up: Write, name: str, *, physical: bool = True, size: int = 1000, hidden: bool = False
) -> Path:
    root = made_up(f"sys/block/{name}/size", f"{size}\n")
    made_up(f"sys/block/{name}/hidden", f"{int(hidden)}\n")
    if physical:
        made_up(f"sys/block/{name}/device/model", "x")
    return root


def stats(made_up: Write, **disks: tuple[int, int]) -> None:
    made_up(
        "proc/diskstats",
        "".join(
            LINE.format(name=name, sectors=sectors, busy_ms=busy)
            for name, (sectors, busy) in disks.items()
        ),
    )


def test_a_read_that_misses_the_page_cache_is_seen_on_the_disks(tmp_path: Path) -> None:
    size = 16 << 20
    if os.major(os.stat(tmp_path).st_dev) == 0 or not _physical_disks():
        pytest.skip("the temporary folder is not on a disk of this machine")
    file = tmp_path / "cold"
    file.write_bytes(os.urandom(size))
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    source = Disk()
    assert source.probe() is None
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()

    while os.read(fd, 1 << 20):
        pass

    end = time.perf_counter()
    os.close(fd)
    read = source.read()
    assert read["disk/read"] * (time.perf_counter() - begin) >= size * 0.9
    assert read["disk/read"] * (end - begin) >= size * 0.5
    assert 0 < max(share for name, share in read.items() if name.endswith("/busy")) <= 1.0


def test_physical_disks_leave_out_loops_empty_drives_and_hidden_paths(made_up: Write) -> None:
    disk(made_up, "sda")
    disk(made_up, "nvme0n1")
    disk(made_up, "nvme0c0n1", hidden=True)
    disk(made_up, "sr0", size=0)
    root = disk(made_up, "loop0", physical=False)

    assert _physical_disks(root) == ["nvme0n1", "sda"]


def test_rates_are_bytes_a_second_and_a_share_of_time(made_up: Write, time_is) -> None:
    disk(made_up, "sda")
    root = disk(made_up, "sdb")
    stats(made_up, sda=(1000, 100), sdb=(0, 0), loop0=(5, 5))
    source = Disk(root)
    assert source.probe() is None

    time_is.advance(2.0)
    stats(made_up, sda=(3000, 600), sdb=(4000, 2500), loop0=(9999, 9999))

    assert source.read() == pytest.approx(
        {
            "disk/read": (2000 + 4000) * 512 / 2,
            "disk/sda/read": 2000 * 512 / 2,
            "disk/sda/busy": 0.25,
            "disk/sdb/read": 4000 * 512 / 2,
            "disk/sdb/busy": 1.0,
        }
    )


def test_a_counter_that_was_reset_gives_no_rate_once(made_up: Write, time_is) -> None:
    root = disk(made_up, "sda")
    stats(made_up, sda=(1000, 100))
    source = Disk(root)
    assert source.probe() is None

    time_is.advance(1.0)
    stats(made_up, sda=(10, 0))
    after_reset = source.read()
    time_is.advance(1.0)
    stats(made_up, sda=(20, 0))

    assert "disk/sda/read" not in after_reset
    assert source.read()["disk/sda/read"] == 10 * 512


def test_without_a_physical_disk_the_source_is_absent(made_up: Write) -> None:
    root = disk(made_up, "loop0", physical=False)

    why = Disk(root).probe()

    assert why == f"{root}/sys/block: no physical disk in it" and id_of(why) == message.NO_DISK


def test_a_diskstats_that_must_not_be_read_is_named(
    made_up: Write, open_folder: Path, as_nobody
) -> None:
    (open_folder / "sys/block/sda/device").mkdir(parents=True)
    (open_folder / "sys/block/sda/size").write_text("9\n")
    (open_folder / "proc").mkdir()
    closed = open_folder / "proc/diskstats"
    closed.touch(mode=0)

    with as_nobody():
        why = Disk(open_folder).probe()

    assert why == f"{masks.path(closed)}: Permission denied"
