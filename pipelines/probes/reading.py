"""Passes over a file, or over many: read() against mmap, by several threads at once, which let go of the interpreter's lock meanwhile."""

import mmap
import os
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from feedline.pipelines.probes import pagecache
from feedline.pipelines.probes.measure import Refused, Work
from feedline.profiler import clock

READ, MMAP, ADVISED = "read", "mmap", "mmap advised"  # advised: MADV_RANDOM, as LMDB's MDB_NORDAHEAD does
COLD_SHARE = 0.9  # of the bytes must have come from the disk


@dataclass(frozen=True)
class Span:
    """A way through one open file.

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

    def part(self, number: int, of: int) -> "Span":
        """What one of several threads reads: a stretch of its own."""
        ends = [len(self.offsets) * n // of for n in (number, number + 1)]
        return Span(self.fd, self.block, self.offsets[ends[0] : ends[1]], self.how)

    def read(self, until_ns: float = float("inf")) -> int:
        """Read until done or until that time. Returns the bytes read."""
        return self._reads(until_ns) if self.how == READ else self._faults(until_ns)

    def _reads(self, until_ns: float) -> int:
        buffers = [bytearray(self.block)]
        fd, preadv, now, done = self.fd, os.preadv, clock.wall_ns, 0
        for offset in self.offsets:
            done += preadv(fd, buffers, offset)
            if now() > until_ns:
                break
        return done

    def _faults(self, until_ns: float) -> int:
        buffer = np.empty(self.block, np.uint8)
        done = 0
        with mmap.mmap(self.fd, 0, prot=mmap.PROT_READ) as mapping:
            if self.how == ADVISED:
                mapping.madvise(mmap.MADV_RANDOM)
            view = np.frombuffer(mapping, np.uint8)
            for offset in self.offsets:
                np.copyto(buffer, view[offset : offset + self.block])
                done += self.block
                if clock.wall_ns() > until_ns:
                    break
            del view
        return done


def sequential(fd: int, size: int, block: int, how: str) -> Span:
    return Span(fd, block, range(0, size - block + 1, block), how)


def scattered(fd: int, size: int, block: int, how: str, is_cold: bool) -> Span:
    """Blocks at random places, none twice, and so few that the readahead of one seldom brings in another."""
    reach = max(block, pagecache.readahead_bytes(fd) // 2) if how == MMAP and is_cold else block
    count = max(1, min(size // reach // 4, 4096))
    return Span(fd, block, [place * block for place in random.Random(0).sample(range(size // block), count)], how)


def read_file(path: str, how: str) -> int:
    """Open, read and close one file, as a data set with a file per sample does. Returns its bytes."""
    with open(path, "rb") as file:
        if how == READ:
            return len(file.read())
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            return len(mapping[:])


def at_once(threads: int, pass_of: Callable[[int], int], pool: ThreadPoolExecutor) -> int:
    """Run the parts of a pass, each in a thread; one part runs in this one. Returns the sum of what they return."""
    if threads == 1:
        return pass_of(0)
    return sum(pool.map(pass_of, range(threads)))


def cold(fds: Callable[[], Iterable[int]], run: Callable[[], int], total: Callable[[int], int]) -> Work:
    """A pass over files whose pages were dropped before, checked to have come from the disk.

    Args:
        fds: opens the files; they are closed again.
        run: the pass; returns units.
        total: units -> bytes.

    Raises (in the pass):
        Refused: the pages could not be dropped.
    """
    before: list[int | None] = [None]

    def empty() -> None:
        shares = []
        for fd in fds():
            try:
                pagecache.evict(fd)
                shares.append(pagecache.resident_share(fd))
            finally:
                os.close(fd)
        before[0] = pagecache.disk_bytes()
        if before[0] is None and any(share is None or share > 1 - COLD_SHARE for share in shares):
            raise Refused("the page cache cannot be emptied here, or not be looked at")

    def checked() -> int:
        done = run()
        after = pagecache.disk_bytes()
        if before[0] is not None and after is not None and after - before[0] < COLD_SHARE * total(done):
            seen = f"only {max(0, after - before[0]):,} of {total(done):,} bytes came from a disk"
            raise Refused(f"not cold: {seen} (a file system in memory, or of a server)")
        return done

    return Work(checked, empty)


def warm(run: Callable[[], int], total: Callable[[int], int], fill: Callable[[], object]) -> Work:
    """A pass over files that are in the page cache, checked to have come from there.

    Args:
        fill: reads all of them; called before the first pass.
    """
    filled: list[object] = []

    def prepare() -> None:
        if not filled:
            filled.append(fill())

    def checked() -> int:
        before = pagecache.disk_bytes()
        done = run()
        after = pagecache.disk_bytes()
        if before is not None and after is not None and after - before > (1 - COLD_SHARE) * total(done):
            raise Refused(f"not warm: {after - before:,} of {total(done):,} bytes came from the disk: they do not stay in the page cache")
        return done

    return Work(checked, prepare)
