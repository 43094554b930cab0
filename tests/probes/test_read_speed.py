"""What is read, and that cold is cold and warm is warm."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feedline.pipelines.probes import read_speed, reader
from feedline.pipelines.probes.probe_rounds import CannotMeasure, ProbePlan
from feedline.pipelines.probes.read_speed import ADVISED, MMAP, READ

MIB = 1 << 20


@pytest.fixture
def file(tmp_path):
    """(descriptor, size) of a file that is on the disk. Its first bytes are not zero."""
    with read_speed._scratch_file(tmp_path, 16 * MIB) as opened:
        yield opened


@pytest.fixture(scope="module")
def readers():
    with read_speed._start_readers(4) as started:
        yield started


@pytest.fixture
def in_memory():
    """A folder on a file system in memory."""
    if read_speed.filesystem(Path("/dev/shm")) != "tmpfs":
        pytest.skip("/dev/shm is not a tmpfs here")
    return Path("/dev/shm")


def on_a_disk(path: Path) -> None:
    if read_speed.filesystem(path) in ("tmpfs", "ramfs", "unknown"):
        pytest.skip(
            f"no cold file can be made here: {path} is on a file system of type "
            f"{read_speed.filesystem(path)}"
        )


def test_a_file_system_without_fsync_is_no_error(tmp_path, monkeypatch):
    def refused(fd):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(read_speed, "_resident_share", lambda fd: 1.0)
    monkeypatch.setattr(os, "fsync", refused)
    path = tmp_path / "file"
    path.write_bytes(bytes(100))

    with open(path, "rb") as opened:
        read_speed.evict(opened.fileno())


def test_evicted_pages_are_gone_even_when_they_waited_to_be_written(tmp_path):
    on_a_disk(tmp_path)
    path = tmp_path / "dirty"
    path.write_bytes(os.urandom(MIB))
    with open(path, "rb") as opened:
        assert read_speed._resident_share(opened.fileno()) == 1.0

        read_speed.evict(opened.fileno())

        assert read_speed._resident_share(opened.fileno()) == 0.0


def test_the_resident_share_counts_pages(file, tmp_path):
    on_a_disk(tmp_path)
    fd, size = file
    read_speed.evict(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead

    os.pread(fd, size // 4, 0)

    assert read_speed._resident_share(fd) == 0.25


def test_the_share_of_several_files_is_their_mean(tmp_path):
    on_a_disk(tmp_path)
    paths = [tmp_path / name for name in "abcd"]
    for path in paths:
        path.write_bytes(os.urandom(MIB))
    with open(paths[0], "rb") as opened:
        read_speed.evict(opened.fileno())

    assert read_speed.cached_share(map(str, paths)) == 0.75


def test_the_share_is_unknown_to_a_user_who_may_not_write_the_file(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    path = tmp_path / "of root"
    path.write_bytes(bytes(MIB))
    with open(path, "rb") as opened:
        assert read_speed._resident_share(opened.fileno()) == 1.0
        os.seteuid(65534)
        try:
            assert read_speed._resident_share(opened.fileno()) is None
        finally:
            os.seteuid(0)


def parts(span: read_speed._ReadPattern, number: int) -> list[int]:
    """The offsets that so many readers are sent to, together."""
    return [offset for job in span.jobs(number) for offset in job[-2]]


@pytest.mark.parametrize("how", [READ, MMAP])
def test_a_sequential_pass_reads_every_byte_once(file, readers, how):
    fd, size = file
    span = read_speed._sequential_reads(fd, size, MIB, how)

    assert readers.at_once(span.jobs(3)).units == size
    assert parts(span, 3) == list(range(0, size, MIB))


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("how", [READ, MMAP, ADVISED])
def test_scattered_blocks_lie_within_the_file_and_none_twice(file, readers, how, is_cold):
    fd, size = file
    span = read_speed._scattered_reads(fd, size, 4096, how, is_cold)

    assert len(set(span.offsets)) == len(span.offsets) == len(parts(span, 3))
    assert all(offset % 4096 == 0 and 0 <= offset <= size - 4096 for offset in span.offsets)
    assert is_cold or len(span.offsets) == size // 4096
    assert readers.at_once(span.jobs(3)).units == span.bytes


@pytest.mark.parametrize("how", [READ, MMAP, ADVISED])
def test_what_a_block_holds_is_what_was_read(tmp_path, how):
    (tmp_path / "file").write_bytes(bytes(4096) + bytes([7]) * 4096)
    buffer = memoryview(bytearray(4096))
    copy = reader._reads if how == READ else lambda fd, to: reader._faults(fd, to, how)

    with open(tmp_path / "file", "rb") as opened:
        copy(opened.fileno(), buffer)([4096])

    assert bytes(buffer) == bytes([7]) * 4096


def test_a_slow_disk_ends_a_pass_early(file, readers):
    fd, size = file

    assert (
        readers.at_once(read_speed._sequential_reads(fd, size, MIB, READ).jobs(1, limit_s=0)).units
        == MIB
    )


@pytest.mark.parametrize("how", [READ, MMAP])
def test_warm_readers_go_round_until_the_time_is_up(file, readers, how):
    fd, size = file

    done = readers.at_once(
        read_speed._sequential_reads(fd, size, MIB, how).jobs(2, limit_s=0.2, again=True)
    )

    assert done.units > size
    assert 0.2 <= done.wall_s


def test_a_pass_lasts_from_the_first_start_to_the_last_end(file, readers, tmp_path):
    fd, size = file
    [long] = read_speed._sequential_reads(fd, size, MIB, READ).jobs(1)
    (tmp_path / "small").write_bytes(b"1")
    short = ("files", 10**18, False, [str(tmp_path / "small")], READ)

    alone, both = readers.at_once([short]), readers.at_once([long, short])

    assert both.units == size + 1
    assert both.wall_s > alone.wall_s
    assert both.cpu_s > alone.cpu_s


def test_a_file_that_is_gone_refuses_the_pass_and_the_readers_go_on(file, readers, tmp_path):
    fd, size = file
    gone = ("files", 10**18, False, [str(tmp_path / "gone")], READ)

    with pytest.raises(CannotMeasure, match="FileNotFoundError.*gone"):
        readers.at_once([gone, *read_speed._sequential_reads(fd, size, MIB, READ).jobs(1)])

    assert readers.at_once(read_speed._sequential_reads(fd, size, MIB, READ).jobs(2)).units == size


def test_a_file_that_cannot_be_opened_refuses_the_pass_before_any_reader_begins(file, readers):
    fd, size = file
    absent = ("blocks", 10**18, False, "/proc/self/fd/999999", MIB, [0], READ)

    with pytest.raises(CannotMeasure, match="FileNotFoundError"):
        readers.at_once([*read_speed._sequential_reads(fd, size, MIB, READ).jobs(1), absent])

    assert readers.at_once(read_speed._sequential_reads(fd, size, MIB, READ).jobs(2)).units == size


def test_a_killed_reader_refuses_the_pass_and_none_is_left_running(file):
    fd, size = file
    with read_speed._start_readers(2) as started:
        started.processes[1].kill()
        started.processes[1].wait()

        with pytest.raises(CannotMeasure, match="ended with exit code -9"):
            started.at_once(read_speed._sequential_reads(fd, size, MIB, READ).jobs(2))

    assert all(process.returncode is not None for process in started.processes)


def test_readers_end_with_the_process_that_started_them():
    program = (
        "from feedline.pipelines.probes import read_speed\nimport os\nwith "
        "read_speed._start_readers(2) as started:\n"
    )
    program += (
        "    print(*(one.pid for one in started.processes), flush=True)\n    "
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    pids = done.stdout.split()

    until = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)

    assert (done.returncode, len(pids)) == (-9, 2)
    assert not any(alive(pid) for pid in pids)


def alive(pid: str) -> bool:
    """Whether it runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_cold_reading_from_memory_is_refused(in_memory, readers):
    with read_speed._scratch_file(in_memory, 16 * MIB) as (fd, size):
        way = read_speed._ReadMode("sequential", READ, "cold", 1, MIB)
        work = read_speed._pattern_workload(fd, size, way, ProbePlan(), readers)
        work.prepare()

        with pytest.raises(
            CannotMeasure, match="not cold: only 0 of 16,777,216 bytes came from a disk"
        ):
            work.run()


def test_warm_reading_that_comes_from_the_disk_is_refused(file, readers, tmp_path):
    on_a_disk(tmp_path)
    fd, size = file
    way = read_speed._ReadMode("sequential", READ, "warm", 1, MIB)
    work = read_speed._pattern_workload(fd, size, way, ProbePlan(), readers)
    work.prepare()
    read_speed.evict(fd)

    with pytest.raises(CannotMeasure, match="do not stay in the page cache"):
        work.run()


def test_the_scratch_file_has_no_name(tmp_path):
    with read_speed._scratch_file(tmp_path, 16 * MIB) as (fd, size):
        assert list(tmp_path.iterdir()) == []
        assert os.fstat(fd).st_size == size == 16 * MIB


def test_every_way_is_measured_on_a_disk(subject, named, folder):
    on_a_disk(folder)

    found = named(read_speed.probe(subject()))

    assert {name: one.why for name, one in found.items() if one.why} == {}
    assert {
        (
            one.settings["pattern"],
            one.settings["how"],
            one.settings["cache"],
            one.settings["readers"],
        )
        for one in found.values()
    } >= {
        (pattern, how, cache, number)
        for pattern in ("files", "sequential", "random 4 KiB")
        for how in (READ, MMAP)
        for cache in ("cold", "warm")
        for number in (1, 4)
    }
    assert found["read/files read cold x1"].unit == "samples/s"
    assert found["read/sequential read cold x1"].unit == "B/s"


def test_files_in_memory_are_measured_warm_and_refused_cold(
    subject, named, in_memory, photos, tmp_path_factory
):
    copies = in_memory / f"feedline-{os.getpid()}"
    copies.mkdir()
    try:
        for photo in photos.photos[:8]:
            (copies / Path(photo.path).name).write_bytes(Path(photo.path).read_bytes())
        from feedline.pipelines.photos import scan

        found = named(read_speed.probe(subject(photos=scan(copies), folder=copies)))
    finally:
        for path in copies.iterdir():
            path.unlink()
        copies.rmdir()

    assert found["read/files read warm x1"].value
    assert found["read/files read cold x1"].value is None
    assert "in-memory" in found["read/files read cold x1"].why


def test_a_folder_that_cannot_be_written_is_a_row_and_the_files_are_still_measured(subject, named):
    found = named(read_speed.probe(subject(folder=Path("/proc"))))

    assert "no scratch file in /proc" in found["read/sequential"].why
    assert found["read/files read warm x1"].value


def test_files_larger_than_the_scratch_file_are_a_row_and_the_rest_is_measured(
    subject, named, tmp_path
):
    """Real files of 17 MB, and the smallest scratch file."""
    from PIL import Image

    from feedline.pipelines.photos import scan

    (tmp_path / "large").mkdir()
    Image.new("RGB", (2400, 2400)).save(tmp_path / "large" / "image.bmp")
    plan = ProbePlan(rounds=1, seconds=0.0, scratch_bytes=16 * MIB, readers=(1,))

    found = named(read_speed.probe(subject(photos=scan(tmp_path), folder=tmp_path, plan=plan)))

    why = "a file of the dataset is larger than the scratch file"
    assert found["read/random by sample"].why == why
    assert found["read/random 4 KiB read warm x1"].value
