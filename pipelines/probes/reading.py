"""Passes over files by several processes at once, with checks that a cold cache is cold and a warm one is warm."""

import marshal
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from feedline.pipelines.probes import pagecache, reader
from feedline.pipelines.probes.measure import Refused, Timed, Work
from feedline.pipelines.probes.reader import ADVISED, MMAP, READ

__all__ = ["ADVISED", "MMAP", "Pass", "READ", "Readers", "Span", "cold", "readers", "scattered", "sequential", "warm"]

_COLD_SHARE = 0.9  # of the bytes must have come from the disk
_COLD_BLOCKS = 4096  # of a pass at random places: a disk with a head needs 40 s for them
_IN_FLIGHT_S = 0.01  # pages that the last pass read ahead and that have not arrived yet cannot be dropped
UNLIMITED = 1e6  # seconds
Job = tuple[object, ...]  # for reader.py


@dataclass(frozen=True)
class Pass(Timed):
    """A pass, from the start of the first reader to the end of the last.

    Attributes:
        disk: bytes that came from the disk; None: the kernel does not tell.
    """

    disk: int | None


@dataclass(frozen=True)
class Readers:
    """Processes that wait for read jobs (reader.py)."""

    processes: Sequence["subprocess.Popen[bytes]"]

    def at_once(self, jobs: Sequence[Job]) -> Pass:
        """Run one job per process, all started together when each process is ready.

        Raises:
            Refused: a job failed, or its process was killed.
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
        if failed := [one for one in (answers if all_ready else words) if isinstance(one, str) and one != "ready"]:
            raise Refused(failed[0])
        units, starts, ends, cpu, disk = zip(*answers, strict=True)
        return Pass(sum(units), (max(ends) - min(starts)) * 1e-9, sum(cpu) * 1e-9, None if None in disk else sum(disk))


@contextmanager
def readers(number: int) -> Iterator[Readers]:
    """Start readers. They end with the block, and when this process is killed. Ctrl-C in a terminal does not reach them."""
    command = [sys.executable, "-I", "-S", reader.__file__]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True))
        yield Readers(processes)
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
    """What it says, or a text about its end."""
    assert process.stdout is not None
    try:
        return marshal.load(process.stdout)
    except EOFError:
        return f"a reading process ended with exit code {process.wait()}"


@dataclass(frozen=True)
class Span:
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
        return self.block * len(self.offsets)

    def jobs(self, number: int, limit_s: float = UNLIMITED, again: bool = False) -> list[Job]:
        """Jobs for several readers: each opens the file itself, so that each has its own readahead, and reads its own part."""
        path = f"/proc/{os.getpid()}/fd/{self.fd}"
        ends = [len(self.offsets) * n // number for n in range(number + 1)]
        parts = [list(self.offsets[first:last]) for first, last in zip(ends, ends[1:])]
        return [("blocks", round(limit_s * 1e9), again, path, self.block, part, self.how) for part in parts]


def sequential(fd: int, size: int, block: int, how: str) -> Span:
    return Span(fd, block, range(0, size - block + 1, block), how)


def scattered(fd: int, size: int, block: int, how: str, is_cold: bool) -> Span:
    """Blocks at random offsets without repetition: all of them if warm; if cold, few enough that readahead seldom loads another one."""
    reach = max(block, pagecache.readahead_bytes(fd) // 2) if how == MMAP else block
    count = max(1, min(size // reach // 4, _COLD_BLOCKS)) if is_cold else size // block
    return Span(fd, block, [place * block for place in random.Random(0).sample(range(size // block), count)], how)


def cold(fds: Callable[[], Iterable[int]], run: Callable[[], Pass], total: Callable[[float], float]) -> Work:
    """A pass over files whose pages were evicted before; checks that the bytes came from the disk.

    Args:
        fds: opens the files; they are closed again.
        total: units -> bytes.

    Raises (in the pass):
        Refused: the pages could not be dropped.
    """
    left: list[float | None] = []

    def drop() -> list[float | None]:
        shares = []
        for fd in fds():
            try:
                pagecache.evict(fd)
                shares.append(pagecache.resident_share(fd))
            finally:
                os.close(fd)
        return shares

    def empty() -> None:
        drop()
        time.sleep(_IN_FLIGHT_S)
        left[:] = drop()

    def checked() -> Pass:
        done = run()
        if done.disk is None and any(share is None or share > 1 - _COLD_SHARE for share in left):
            raise Refused("the page cache cannot be emptied or inspected here")
        if done.disk is not None and done.disk < _COLD_SHARE * total(done.units):
            seen = f"only {done.disk:,} of {total(done.units):,.0f} bytes came from a disk"
            raise Refused(f"not cold: {seen} (an in-memory or network file system)")
        return done

    return Work(checked, empty)


def warm(run: Callable[[], Pass], total: Callable[[float], float], fill: Callable[[], Pass]) -> Work:
    """A pass over cached files; checks that the bytes came from the page cache.

    Args:
        total: units -> bytes.
        fill: reads all of them once; called before the first pass.
    """
    filled: list[Pass] = []

    def prepare() -> None:
        if not filled:
            filled.append(fill())

    def checked() -> Pass:
        done = run()
        once = min(total(done.units), total(filled[0].units))  # what came from the disk at first is in memory the next time round
        if done.disk is not None and done.disk > (1 - _COLD_SHARE) * once:
            raise Refused(f"not warm: {done.disk:,} of {once:,.0f} bytes came from the disk: they do not stay in the page cache")
        return done

    return Work(checked, prepare)
