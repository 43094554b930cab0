"""How fast files can be read: the user's own, one by one, and one large file in order and at random places.

Cold: the page cache of this machine was emptied of them and every pass checked to have come from the disk. Names and inodes stay cached,
and so may the data in a disk, a hypervisor or a server. Warm: every pass checked to have come from memory.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from feedline.pipelines.photos import Photo
from feedline.pipelines.probes import pagecache, reading
from feedline.pipelines.probes.measure import Plan, Refused, Work, ceiling, in_turns, reason
from feedline.pipelines.probes.reading import ADVISED, MMAP, READ
from feedline.pipelines.probes.subject import Subject
from feedline.profiler import clock
from feedline.profiler.ceilings import Ceiling

MIB = 1 << 20
BLOCK = MIB  # of sequential reads
PAGE = 4096


class Way(NamedTuple):
    """One thing to measure: what its name and its settings are made of."""

    pattern: str
    how: str
    cache: str
    threads: int
    block: int

    @property
    def name(self) -> str:
        return f"read/{self.pattern} {self.how} {self.cache} x{self.threads}"

    def settings(self, where: str) -> dict[str, object]:
        return {
            "pattern": self.pattern,
            "how": self.how,
            "cache": self.cache,
            "threads": self.threads,
            "block_bytes": self.block,
            "file_system": where,
        }


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Every way of reading: by file, sequential, random; read() and mmap; cold and warm; by so many threads at once as the plan says."""
    where = pagecache.filesystem(subject.folder)
    with ThreadPoolExecutor(max(subject.plan.threads)) as pool:
        yield from _by_file(subject, where, pool)
        block = _sample_block(subject.sample)
        try:
            with scratch(subject.folder, subject.plan.scratch_bytes) as (fd, size):
                for pattern, size_of in (("sequential", BLOCK), ("random 4 KiB", PAGE), ("random by sample", block)):
                    if size_of and (pattern != "random by sample" or size_of != PAGE):
                        yield from one_file(fd, size, pattern, size_of, subject.plan, where, pool)
        except (OSError, Refused) as error:
            for pattern in ("sequential", "random 4 KiB"):
                yield ceiling(f"read/{pattern}", f"no scratch file in {subject.folder}: {reason(error)}", unit="B/s")


def one_file(fd: int, size: int, pattern: str, block: int, plan: Plan, where: str, pool: ThreadPoolExecutor) -> Iterator[Ceiling]:
    """Ceilings of one pattern on an open file, cold and then warm."""
    for cache in ("cold", "warm"):
        ways = {
            way.name: way
            for how in ((READ, MMAP) if pattern == "sequential" else (READ, MMAP, ADVISED))
            for threads in plan.threads
            for way in [Way(pattern, how, cache, threads, block)]
        }
        found = in_turns({name: span_work(fd, size, way, plan, pool) for name, way in ways.items()}, plan)
        for name, way in ways.items():
            source = f"{way.how} of {block:,} B, {pattern}, in a file of {size // MIB} MiB made for it"
            settings = {**way.settings(where), "read_ahead_bytes": pagecache.readahead_bytes(fd)}
            yield ceiling(name, found[name], unit="B/s", source=source, settings=settings)


def span_of(fd: int, size: int, way: Way) -> reading.Span:
    """The blocks that are read."""
    if way.pattern == "sequential":
        return reading.sequential(fd, size, way.block, way.how)
    return reading.scattered(fd, size, way.block, way.how, way.cache == "cold")


def span_work(fd: int, size: int, way: Way, plan: Plan, pool: ThreadPoolExecutor) -> Work:
    """One way through one open file. A slow disk ends a pass early; what it read until then counts."""
    span, whole = span_of(fd, size, way), reading.sequential(fd, size, BLOCK, READ)

    def run() -> int:
        until = clock.wall_ns() + 4e9 * plan.seconds
        return reading.at_once(way.threads, lambda number: span.part(number, way.threads).read(until), pool)

    if way.cache == "cold":
        return reading.cold(lambda: [os.dup(fd)], run, int)
    return reading.warm(run, int, whole.read)


def _by_file(subject: Subject, where: str, pool: ThreadPoolExecutor) -> Iterator[Ceiling]:
    if not subject.sample:
        yield ceiling("read/files", "no data set was given: name it with --data")
        return
    for group, photos in _by_size(subject.sample).items():
        paths = [photo.path for photo in photos]
        mean = sum(photo.bytes for photo in photos) / len(photos)
        for cache in ("cold", "warm"):
            ways = {
                way.name: way
                for how in (READ, MMAP)
                for threads in (subject.plan.threads if group == "files" else (1,))
                for way in [Way(group, how, cache, threads, round(mean))]
            }
            found = in_turns({name: _files_work(paths, way, mean, pool) for name, way in ways.items()}, subject.plan)
            for name, way in ways.items():
                source = f"open, {way.how}, close of {len(paths)} of the user's files, {mean:,.0f} B on average"
                yield ceiling(name, found[name], source=source, settings=way.settings(where))


def _files_work(paths: Sequence[str], way: Way, mean: float, pool: ThreadPoolExecutor) -> Work:
    order = random.Random(0).sample(list(paths), len(paths))

    def part(number: int) -> int:
        mine = order[number :: way.threads]
        for path in mine:
            reading.read_file(path, way.how)
        return len(mine)

    def run() -> int:
        return reading.at_once(way.threads, part, pool)

    def total(files: int) -> int:
        return round(files * mean)

    if way.cache == "cold":
        return reading.cold(lambda: (os.open(path, os.O_RDONLY) for path in paths), run, total)
    return reading.warm(run, total, run)


def _by_size(photos: Sequence[Photo]) -> dict[str, Sequence[Photo]]:
    """All files; and the smallest and the largest quarter, where these differ by a factor of two or more."""
    ordered = sorted(photos, key=lambda photo: photo.bytes)
    quarter = len(ordered) // 4
    groups: dict[str, Sequence[Photo]] = {"files": photos}
    if quarter >= 8 and sum(p.bytes for p in ordered[-quarter:]) >= 2 * sum(p.bytes for p in ordered[:quarter]):
        groups |= {"smallest files": ordered[:quarter], "largest files": ordered[-quarter:]}
    return groups


def _sample_block(photos: Sequence[Photo]) -> int:
    """The mean file, in whole pages: what one read from a packed data set brings in."""
    return max(1, round(sum(photo.bytes for photo in photos) / len(photos) / PAGE)) * PAGE if photos else 0


@contextmanager
def scratch(folder: Path, size: int) -> Iterator[tuple[int, int]]:
    """A file of random bytes without a name: it is gone when it is closed, however the process ends.

    Yields:
        (file descriptor, size); smaller than asked for where the disk is nearly full.

    Raises:
        OSError: the folder is read-only. Refused: less than 64 MiB are free on its disk.
    """
    free = shutil.disk_usage(folder).free
    size = min(size, free // 4 // MIB * MIB)
    if size < 16 * MIB:
        raise Refused(f"only {free // MIB} MiB are free on its disk")
    fill = random.Random(0)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(size // MIB):
            file.write(fill.randbytes(MIB))
        file.flush()
        os.fsync(file.fileno())
        yield file.fileno(), size
