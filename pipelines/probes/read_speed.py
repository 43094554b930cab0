"""Read speed, with the page cache empty or full: the user's files one by one, and one large file in order and at random offsets.

Cold: the page cache of this machine was emptied of them and every pass checked to have come from
the disk. Names and inodes stay cached, and so may the data in a disk, a hypervisor or a server.
Warm: every pass checked to have come from memory.

Those that read at once are processes, as workers of DataLoader are: threads of Python would wait
for its lock.
"""

import ctypes
import marshal
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from feedline.pipelines.photos import Photo
from feedline.pipelines.probes import reader
from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    ProbePlan,
    Subject,
    TimedPass,
    Workload,
    as_ceiling,
    error_reason,
    measure_in_turns,
)
from feedline.pipelines.probes.reader import ADVISED, MMAP, READ
from feedline.profiler.ceilings import Ceiling

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value
_COLD_SHARE = 0.9  # of the bytes must have come from the disk
_COLD_BLOCKS = 4096  # of a pass at random places: a disk with a head needs 40 s for them
# pages that the last pass read ahead and that have not arrived yet cannot be dropped
_IN_FLIGHT_S = 0.01
_UNLIMITED_S = 1e6  # seconds
_Job = tuple[object, ...]  # for reader.py
_MEBIBYTE = 1 << 20
_SEQUENTIAL_BYTES = _MEBIBYTE  # of sequential reads
_PAGE_SIZE = 4096


def evict(fd: int) -> None:
    """Evict the file's pages. Dirty pages are written first, or they would stay."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if _resident_share(fd) != 0.0:
        with suppress(OSError):  # a file system that is only read may have none
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _resident_share(fd: int) -> float | None:
    """Return the share of the file's pages in the page cache (mincore).

    None if the kernel does not provide it, or not to this user: Linux tells who owns the file or
    may write it, and says "all of it" to everybody else (mm/mincore.c, can_do_mincore).
    """
    size = os.fstat(fd).st_size
    if size == 0:
        return 0.0
    if not _may_ask(fd):
        return None
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        return None
    try:
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if _libc.mincore(address, size, pages) != 0:
            return None
        return sum(page & 1 for page in pages.raw[: len(pages)]) / len(pages)
    finally:
        _libc.munmap(address, size)


def _may_ask(fd: int) -> bool:
    """Tell whether Linux says the truth to this user about the file's pages."""
    own = os.geteuid() == os.fstat(fd).st_uid  # root may be without its rights, in a container
    return own or os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True)


def cached_share(paths: Iterable[str]) -> float | None:
    """Return the mean share of these files in the page cache; None: Linux tells it of none."""
    shares = []
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            shares.append(_resident_share(file.fileno()))
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def _readahead_bytes(fd: int) -> int:
    """Return how many bytes one page fault of a mapping may read.

    Linux's default of 128 KiB if the kernel does not say.
    """
    device = os.fstat(fd).st_dev
    try:
        return (
            int(
                Path(
                    f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
                ).read_text()
            )
            * 1024
        )
    except (OSError, ValueError):
        return 128 * 1024


def filesystem(path: Path) -> str:
    """Return the type of a path's file system: ``ext4``, ``overlay``, ``tmpfs``, ``nfs4``."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            for line in file:
                fields, _, more = line.partition(" - ")
                if fields.split()[2] == wanted:
                    return more.split()[0]
    except (OSError, IndexError):
        pass
    return "unknown"


@dataclass(frozen=True)
class _ReadPass(TimedPass):
    """A pass, from the start of the first reader to the end of the last.

    Attributes:
        disk: bytes that came from the disk; None: the kernel does not tell.
    """

    disk: int | None


@dataclass(frozen=True)
class _Readers:
    """Processes that wait for read jobs (reader.py)."""

    processes: Sequence["subprocess.Popen[bytes]"]

    def at_once(self, jobs: Sequence[_Job]) -> _ReadPass:
        """Run one job per process, all started together when each process is ready.

        Raises:
            CannotMeasure: a job failed, or its process was killed.
        """
        used = self.processes[: len(jobs)]
        for process, job in zip(used, jobs, strict=True):
            _tell(process, marshal.dumps(job))  # type: ignore[arg-type]
        words = [_answer(process) for process in used]
        all_ready = all(word == "ready" for word in words)
        waiting = [process for process, word in zip(used, words, strict=True) if word == "ready"]
        for process in waiting:
            _tell(process, reader.GO if all_ready else reader.CALLED_OFF)
        answers = [_answer(process) for process in waiting]
        if failed := [
            word
            for word in (answers if all_ready else words)
            if isinstance(word, str) and word != "ready"
        ]:
            raise CannotMeasure(failed[0])
        units, starts, ends, cpu, disk = zip(*answers, strict=True)
        return _ReadPass(
            sum(units),
            (max(ends) - min(starts)) * 1e-9,
            sum(cpu) * 1e-9,
            None if None in disk else sum(disk),
        )


@contextmanager
def _start_readers(number: int) -> Iterator[_Readers]:
    """Start readers, which end with the block, and when this process is killed.

    Ctrl-C in a terminal does not reach them.
    """
    command = [sys.executable, "-I", "-S", reader.__file__]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
            )
        yield _Readers(processes)
    finally:
        for process in processes:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()


def _tell(process: "subprocess.Popen[bytes]", what: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it ended: its answer says so
        process.stdin.write(what)
        process.stdin.flush()


def _answer(process: "subprocess.Popen[bytes]") -> Any:
    """Return what a reader says, or a text about its end."""
    assert process.stdout is not None
    try:
        return marshal.load(process.stdout)
    except EOFError:
        return f"a reading process ended with exit code {process.wait()}"


@dataclass(frozen=True)
class _ReadPattern:
    """A pattern of reads in one open file.

    Attributes:
        offsets: of the blocks, in the order in which they are read.
        how: READ, MMAP or ADVISED.
    """

    fd: int
    block: int
    offsets: Sequence[int]
    how: str = READ

    @property
    def bytes(self) -> int:
        """How much is read."""
        return self.block * len(self.offsets)

    def jobs(self, number: int, limit_s: float = _UNLIMITED_S, again: bool = False) -> list[_Job]:
        """Return jobs for several readers, each with its own part.

        Each opens the file itself, so that each has its own readahead.
        """
        path = f"/proc/{os.getpid()}/fd/{self.fd}"
        ends = [len(self.offsets) * n // number for n in range(number + 1)]
        parts = [list(self.offsets[first:last]) for first, last in zip(ends, ends[1:])]
        return [
            ("blocks", round(limit_s * 1e9), again, path, self.block, part, self.how)
            for part in parts
        ]


def _sequential_reads(fd: int, size: int, block: int, how: str) -> _ReadPattern:
    return _ReadPattern(fd, block, range(0, size - block + 1, block), how)


def _scattered_reads(fd: int, size: int, block: int, how: str, is_cold: bool) -> _ReadPattern:
    """Read blocks at random offsets without repetition.

    All of them if warm; if cold, few enough that readahead seldom loads another one.
    """
    reach = max(block, _readahead_bytes(fd) // 2) if how == MMAP else block
    count = max(1, min(size // reach // 4, _COLD_BLOCKS)) if is_cold else size // block
    return _ReadPattern(
        fd,
        block,
        [place * block for place in random.Random(0).sample(range(size // block), count)],
        how,
    )


def _cold_workload(
    fds: Callable[[], Iterable[int]], run: Callable[[], _ReadPass], total: Callable[[float], float]
) -> Workload:
    """Read files whose pages were evicted before, and check that a disk was read.

    Args:
        fds: opens the files; they are closed again.
        run: one pass.
        total: units -> bytes.

    Raises (in the pass):
        CannotMeasure: the pages could not be dropped.
    """
    left: list[float | None] = []

    def drop() -> list[float | None]:
        shares = []
        for fd in fds():
            try:
                evict(fd)
                shares.append(_resident_share(fd))
            finally:
                os.close(fd)
        return shares

    def empty() -> None:
        drop()
        time.sleep(_IN_FLIGHT_S)
        left[:] = drop()

    def checked() -> _ReadPass:
        done = run()
        if done.disk is None and any(share is None or share > 1 - _COLD_SHARE for share in left):
            raise CannotMeasure("the page cache cannot be emptied or inspected here")
        if done.disk is not None and done.disk < _COLD_SHARE * total(done.units):
            seen = f"only {done.disk:,} of {total(done.units):,.0f} bytes came from a disk"
            raise CannotMeasure(f"not cold: {seen} (an in-memory or network file system)")
        return done

    return Workload(checked, empty)


def _warm_workload(
    run: Callable[[], _ReadPass], total: Callable[[float], float], fill: Callable[[], _ReadPass]
) -> Workload:
    """Read cached files, and check that the bytes came from the page cache.

    Args:
        run: one pass.
        total: units -> bytes.
        fill: reads all of them once; called before the first pass.
    """
    filled: list[_ReadPass] = []

    def prepare() -> None:
        if not filled:
            filled.append(fill())

    def checked() -> _ReadPass:
        done = run()
        # what came from the disk at first is in memory the next time round
        once = min(total(done.units), total(filled[0].units))
        if done.disk is not None and done.disk > (1 - _COLD_SHARE) * once:
            raise CannotMeasure(
                f"not warm: {done.disk:,} of {once:,.0f} bytes came from the disk: they do not "
                f"stay in the page cache"
            )
        return done

    return Workload(checked, prepare)


class _ReadMode(NamedTuple):
    """One mode of reading: the parts of its name and settings."""

    pattern: str
    how: str
    cache: str
    readers: int
    block: int

    @property
    def name(self) -> str:
        """The name of its ceiling."""
        return f"read/{self.pattern} {self.how} {self.cache} x{self.readers}"

    def settings(self, where: str) -> dict[str, object]:
        """Return the settings of its ceiling."""
        return {
            "pattern": self.pattern,
            "how": self.how,
            "cache": self.cache,
            "readers": self.readers,
            "block_bytes": self.block,
            "file_system": where,
        }


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure all modes of reading.

    By file, sequential, random; read() and mmap; cold and warm; with the plan's numbers of
    processes.
    """
    where = filesystem(subject.folder)
    with _start_readers(max(subject.plan.readers)) as readers:
        yield from _by_file(subject, where, readers)
        block = _sample_block(subject.sample)
        try:
            with _scratch_file(subject.folder, subject.plan.scratch_bytes) as (fd, size):
                for pattern, size_of in (
                    ("sequential", _SEQUENTIAL_BYTES),
                    ("random 4 KiB", _PAGE_SIZE),
                    ("random by sample", block),
                ):
                    if size_of > size:
                        why = "a file of the dataset is larger than the scratch file"
                        yield as_ceiling(f"read/{pattern}", why, unit="B/s")
                    elif size_of and (pattern != "random by sample" or size_of != _PAGE_SIZE):
                        yield from _one_file(
                            fd, size, pattern, size_of, subject.plan, where, readers
                        )
        except (OSError, CannotMeasure) as error:
            for pattern in ("sequential", "random 4 KiB"):
                yield as_ceiling(
                    f"read/{pattern}",
                    f"no scratch file in {subject.folder}: {error_reason(error)}",
                    unit="B/s",
                )


def _one_file(
    fd: int, size: int, pattern: str, block: int, plan: ProbePlan, where: str, readers: _Readers
) -> Iterator[Ceiling]:
    """Measure one pattern in an open file, cold, then warm."""
    for cache in ("cold", "warm"):
        modes = {
            mode.name: mode
            for how in ((READ, MMAP) if pattern == "sequential" else (READ, MMAP, ADVISED))
            for number in plan.readers
            for mode in [_ReadMode(pattern, how, cache, number, block)]
        }
        rates = measure_in_turns(
            {
                name: _pattern_workload(fd, size, mode, plan, readers)
                for name, mode in modes.items()
            },
            plan,
        )
        for name, mode in modes.items():
            source = (
                f"{mode.how} of {block:,} B, {pattern}, in a file of {size // _MEBIBYTE} MiB "
                f"made for it"
            )
            settings = {**mode.settings(where), "read_ahead_bytes": _readahead_bytes(fd)}
            yield as_ceiling(name, rates[name], unit="B/s", source=source, settings=settings)


def _read_pattern(fd: int, size: int, mode: _ReadMode) -> _ReadPattern:
    """Return the blocks to read."""
    if mode.pattern == "sequential":
        return _sequential_reads(fd, size, mode.block, mode.how)
    return _scattered_reads(fd, size, mode.block, mode.how, mode.cache == "cold")


def _pattern_workload(
    fd: int, size: int, mode: _ReadMode, plan: ProbePlan, readers: _Readers
) -> Workload:
    """Read one open file in one pattern.

    Warm, the readers go round until the time is up, so that none waits for the last one. Cold, a
    slow disk ends a pass early.
    """
    is_cold = mode.cache == "cold"
    jobs = _read_pattern(fd, size, mode).jobs(
        mode.readers, 4 * plan.seconds if is_cold else plan.seconds, again=not is_cold
    )

    def run() -> _ReadPass:
        return readers.at_once(jobs)

    if is_cold:
        return _cold_workload(lambda: [os.dup(fd)], run, float)
    fill = _sequential_reads(fd, size, _SEQUENTIAL_BYTES, READ).jobs(1)
    return _warm_workload(run, float, lambda: readers.at_once(fill))


def _by_file(subject: Subject, where: str, readers: _Readers) -> Iterator[Ceiling]:
    if not subject.sample:
        yield as_ceiling("read/files", "no dataset given: use --data DIR")
        return
    for group, photos in _by_size(subject.sample).items():
        paths = [photo.path for photo in photos]
        mean = sum(photo.bytes for photo in photos) / len(photos)
        for cache in ("cold", "warm"):
            modes = {
                mode.name: mode
                for how in (READ, MMAP)
                for number in (subject.plan.readers if group == "files" else (1,))
                for mode in [_ReadMode(group, how, cache, number, round(mean))]
            }
            rates = measure_in_turns(
                {
                    name: _files_work(paths, mode, mean, subject.plan, readers)
                    for name, mode in modes.items()
                },
                subject.plan,
            )
            for name, mode in modes.items():
                source = (
                    f"open, {mode.how}, close of {len(paths)} of the user's files, "
                    f"{mean:,.0f} B on average"
                )
                yield as_ceiling(name, rates[name], source=source, settings=mode.settings(where))


def _files_work(
    paths: Sequence[str], mode: _ReadMode, mean: float, plan: ProbePlan, readers: _Readers
) -> Workload:
    order = random.Random(0).sample(list(paths), len(paths))

    def once(number: int, limit_s: float = _UNLIMITED_S, again: bool = False) -> _ReadPass:
        return readers.at_once(
            [
                ("files", round(limit_s * 1e9), again, order[n::number], mode.how)
                for n in range(number)
            ]
        )

    def total(files: float) -> float:
        return files * mean

    if mode.cache == "cold":
        return _cold_workload(
            lambda: (os.open(path, os.O_RDONLY) for path in paths),
            lambda: once(mode.readers),
            total,
        )
    return _warm_workload(
        lambda: once(mode.readers, plan.seconds, again=True), total, lambda: once(1)
    )


def _by_size(photos: Sequence[Photo]) -> dict[str, Sequence[Photo]]:
    """Group files: all, and the smallest and the largest quarter.

    The quarters only where these differ by a factor of two or more.
    """
    ordered = sorted(photos, key=lambda photo: photo.bytes)
    quarter = len(ordered) // 4
    groups: dict[str, Sequence[Photo]] = {"files": photos}
    if quarter >= 8 and sum(p.bytes for p in ordered[-quarter:]) >= 2 * sum(
        p.bytes for p in ordered[:quarter]
    ):
        groups |= {"smallest files": ordered[:quarter], "largest files": ordered[-quarter:]}
    return groups


def _sample_block(photos: Sequence[Photo]) -> int:
    """Return the mean file size, in whole pages.

    That is what one read from a packed dataset brings in.
    """
    return (
        max(1, round(sum(photo.bytes for photo in photos) / len(photos) / _PAGE_SIZE)) * _PAGE_SIZE
        if photos
        else 0
    )


@contextmanager
def _scratch_file(folder: Path, size: int) -> Iterator[tuple[int, int]]:
    """Make an unnamed file of random bytes.

    It disappears when it is closed, however the process ends.

    Yields:
        (file descriptor, size); smaller than asked for where the disk is nearly full.

    Raises:
        OSError: the folder is read-only.
        CannotMeasure: less than 64 MiB are free on its disk.
    """
    free = shutil.disk_usage(folder).free
    size = min(size, free // 4 // _MEBIBYTE * _MEBIBYTE)
    if size < 16 * _MEBIBYTE:
        raise CannotMeasure(f"only {free // _MEBIBYTE} MiB are free on its disk")
    fill = random.Random(0)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(size // _MEBIBYTE):
            file.write(fill.randbytes(_MEBIBYTE))
        file.flush()
        os.fsync(file.fileno())
        yield file.fileno(), size
