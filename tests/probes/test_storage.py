"""What is read, and that cold is cold and warm is warm."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from feedline.pipelines.probes import pagecache, reading, storage
from feedline.pipelines.probes.measure import Plan, Refused
from feedline.pipelines.probes.reading import ADVISED, MMAP, READ

MIB = 1 << 20


@pytest.fixture
def file(tmp_path):
    """(descriptor, size) of a file that is on the disk. Its first bytes are not zero."""
    with storage.scratch(tmp_path, 16 * MIB) as opened:
        yield opened


@pytest.fixture
def in_memory():
    """A folder on a file system in memory."""
    if pagecache.filesystem(Path("/dev/shm")) != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    return Path("/dev/shm")


def on_a_disk(path: Path) -> None:
    if pagecache.filesystem(path) in ("tmpfs", "ramfs", "unknown"):
        pytest.skip(f"{path} is on {pagecache.filesystem(path)}: it cannot be cold")


def test_evicted_pages_are_gone_even_when_they_waited_to_be_written(tmp_path):
    on_a_disk(tmp_path)
    path = tmp_path / "dirty"
    path.write_bytes(os.urandom(MIB))
    with open(path, "rb") as opened:
        assert pagecache.resident_share(opened.fileno()) == 1.0

        pagecache.evict(opened.fileno())

        assert pagecache.resident_share(opened.fileno()) == 0.0


def test_the_resident_share_counts_pages(file, tmp_path):
    on_a_disk(tmp_path)
    fd, size = file
    pagecache.evict(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead

    os.pread(fd, size // 4, 0)

    assert pagecache.resident_share(fd) == 0.25


@pytest.mark.parametrize("how", [READ, MMAP])
def test_a_sequential_pass_reads_every_byte_once(file, how):
    fd, size = file
    span = reading.sequential(fd, size, MIB, how)

    assert sum(span.part(number, 3).read() for number in range(3)) == size
    assert [offset for number in range(3) for offset in span.part(number, 3).offsets] == list(range(0, size, MIB))


@pytest.mark.parametrize("how", [READ, MMAP, ADVISED])
def test_scattered_blocks_lie_within_the_file_and_none_twice(file, how):
    fd, size = file
    span = reading.scattered(fd, size, 4096, how, is_cold=True)

    assert len(set(span.offsets)) == len(span.offsets)
    assert all(offset % 4096 == 0 and 0 <= offset <= size - 4096 for offset in span.offsets)
    assert span.read() == span.bytes


def test_a_slow_disk_ends_a_pass_early(file):
    fd, size = file

    assert reading.sequential(fd, size, MIB, READ).read(until_ns=0) == MIB


def test_cold_reading_from_memory_is_refused(in_memory):
    with storage.scratch(in_memory, 16 * MIB) as (fd, size), ThreadPoolExecutor() as pool:
        way = storage.Way("sequential", READ, "cold", 1, MIB)
        work = storage.span_work(fd, size, way, Plan(), pool)
        work.prepare()

        with pytest.raises(Refused, match="not cold: only 0 of 16,777,216 bytes came from a disk"):
            work.run()


def test_warm_reading_that_comes_from_the_disk_is_refused(file, tmp_path):
    on_a_disk(tmp_path)
    fd, size = file
    way = storage.Way("sequential", READ, "warm", 1, MIB)
    with ThreadPoolExecutor() as pool:
        work = storage.span_work(fd, size, way, Plan(), pool)
        work.prepare()
        pagecache.evict(fd)

        with pytest.raises(Refused, match="do not stay in the page cache"):
            work.run()


def test_the_scratch_file_has_no_name(tmp_path):
    with storage.scratch(tmp_path, 16 * MIB) as (fd, size):
        assert list(tmp_path.iterdir()) == []
        assert os.fstat(fd).st_size == size == 16 * MIB


def test_every_way_is_measured_on_a_disk(subject, named, folder):
    on_a_disk(folder)

    found = named(storage.probe(subject()))

    assert {one.why for one in found.values()} == {""}
    assert {(one.settings["pattern"], one.settings["how"], one.settings["cache"], one.settings["threads"]) for one in found.values()} >= {
        (pattern, how, cache, threads)
        for pattern in ("files", "sequential", "random 4 KiB")
        for how in (READ, MMAP)
        for cache in ("cold", "warm")
        for threads in (1, 4)
    }
    assert found["read/files read cold x1"].unit == "samples/s"
    assert found["read/sequential read cold x1"].unit == "B/s"


def test_files_in_memory_are_measured_warm_and_refused_cold(subject, named, in_memory, photos, tmp_path_factory):
    copies = in_memory / f"feedline-{os.getpid()}"
    copies.mkdir()
    try:
        for photo in photos.photos[:8]:
            (copies / Path(photo.path).name).write_bytes(Path(photo.path).read_bytes())
        from feedline.pipelines.photos import scan

        found = named(storage.probe(subject(photos=scan(copies), folder=copies)))
    finally:
        for path in copies.iterdir():
            path.unlink()
        copies.rmdir()

    assert found["read/files read warm x1"].value
    assert found["read/files read cold x1"].value is None
    assert "in memory" in found["read/files read cold x1"].why


def test_a_folder_that_cannot_be_written_is_a_row_and_the_files_are_still_measured(subject, named):
    found = named(storage.probe(subject(folder=Path("/proc"))))

    assert "no scratch file in /proc" in found["read/sequential"].why
    assert found["read/files read warm x1"].value
