"""Read speed: the user's files one by one, and one large file in order and at random offsets.

Cold: the page cache of this machine was emptied of them and every pass checked to have come from the disk. Names and inodes stay cached,
and so may the data in a disk, a hypervisor or a server. Warm: every pass checked to have come from memory.

Those that read at once are processes, as workers of DataLoader are: threads of Python would wait for its lock.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from feedline.pipelines.photos import Photo
from feedline.pipelines.probes import pagecache, reading
from feedline.pipelines.probes.measure import Plan, Refused, Work, ceiling, in_turns, reason
from feedline.pipelines.probes.reading import ADVISED, MMAP, READ, Pass, Readers
from feedline.pipelines.probes.subject import Subject
from feedline.profiler.ceilings import Ceiling

_MIB = 1 << 20
_BLOCK = _MIB  # of sequential reads
_PAGE = 4096


class Way(NamedTuple):
    """One way of reading: the parts of its name and settings."""

    pattern: str
    how: str
    cache: str
    readers: int
    block: int

    @property
    def name(self) -> str:
        return f"read/{self.pattern} {self.how} {self.cache} x{self.readers}"

    def settings(self, where: str) -> dict[str, object]:
        return {
            "pattern": self.pattern,
            "how": self.how,
            "cache": self.cache,
            "readers": self.readers,
            "block_bytes": self.block,
            "file_system": where,
        }


def probe(subject: Subject) -> Iterator[Ceiling]:
    """All ways of reading: by file, sequential, random; read() and mmap; cold and warm; with the plan's numbers of processes."""
    where = pagecache.filesystem(subject.folder)
    with reading.readers(max(subject.plan.readers)) as readers:
        yield from _by_file(subject, where, readers)
        block = _sample_block(subject.sample)
        try:
            with scratch(subject.folder, subject.plan.scratch_bytes) as (fd, size):
                for pattern, size_of in (("sequential", _BLOCK), ("random 4 KiB", _PAGE), ("random by sample", block)):
                    if size_of and (pattern != "random by sample" or size_of != _PAGE):
                        yield from _one_file(fd, size, pattern, size_of, subject.plan, where, readers)
        except (OSError, Refused) as error:
            for pattern in ("sequential", "random 4 KiB"):
                yield ceiling(f"read/{pattern}", f"no scratch file in {subject.folder}: {reason(error)}", unit="B/s")


def _one_file(fd: int, size: int, pattern: str, block: int, plan: Plan, where: str, readers: Readers) -> Iterator[Ceiling]:
    """Ceilings of one pattern in an open file, cold, then warm."""
    for cache in ("cold", "warm"):
        ways = {
            way.name: way
            for how in ((READ, MMAP) if pattern == "sequential" else (READ, MMAP, ADVISED))
            for number in plan.readers
            for way in [Way(pattern, how, cache, number, block)]
        }
        found = in_turns({name: span_work(fd, size, way, plan, readers) for name, way in ways.items()}, plan)
        for name, way in ways.items():
            source = f"{way.how} of {block:,} B, {pattern}, in a file of {size // _MIB} MiB made for it"
            settings = {**way.settings(where), "read_ahead_bytes": pagecache.readahead_bytes(fd)}
            yield ceiling(name, found[name], unit="B/s", source=source, settings=settings)


def span_of(fd: int, size: int, way: Way) -> reading.Span:
    """The blocks to read."""
    if way.pattern == "sequential":
        return reading.sequential(fd, size, way.block, way.how)
    return reading.scattered(fd, size, way.block, way.how, way.cache == "cold")


def span_work(fd: int, size: int, way: Way, plan: Plan, readers: Readers) -> Work:
    """Reading one open file in one pattern.

    Warm, the readers go round until the time is up, so that none waits for the last one. Cold, a slow disk ends a pass early.
    """
    is_cold = way.cache == "cold"
    jobs = span_of(fd, size, way).jobs(way.readers, 4 * plan.seconds if is_cold else plan.seconds, again=not is_cold)

    def run() -> Pass:
        return readers.at_once(jobs)

    if is_cold:
        return reading.cold(lambda: [os.dup(fd)], run, float)
    fill = reading.sequential(fd, size, _BLOCK, READ).jobs(1)
    return reading.warm(run, float, lambda: readers.at_once(fill))


def _by_file(subject: Subject, where: str, readers: Readers) -> Iterator[Ceiling]:
    if not subject.sample:
        yield ceiling("read/files", "no dataset given: use --data DIR")
        return
    for group, photos in _by_size(subject.sample).items():
        paths = [photo.path for photo in photos]
        mean = sum(photo.bytes for photo in photos) / len(photos)
        for cache in ("cold", "warm"):
            ways = {
                way.name: way
                for how in (READ, MMAP)
                for number in (subject.plan.readers if group == "files" else (1,))
                for way in [Way(group, how, cache, number, round(mean))]
            }
            found = in_turns({name: _files_work(paths, way, mean, subject.plan, readers) for name, way in ways.items()}, subject.plan)
            for name, way in ways.items():
                source = f"open, {way.how}, close of {len(paths)} of the user's files, {mean:,.0f} B on average"
                yield ceiling(name, found[name], source=source, settings=way.settings(where))


def _files_work(paths: Sequence[str], way: Way, mean: float, plan: Plan, readers: Readers) -> Work:
    order = random.Random(0).sample(list(paths), len(paths))

    def once(number: int, limit_s: float = reading.UNLIMITED, again: bool = False) -> Pass:
        return readers.at_once([("files", round(limit_s * 1e9), again, order[n::number], way.how) for n in range(number)])

    def total(files: float) -> float:
        return files * mean

    if way.cache == "cold":
        return reading.cold(lambda: (os.open(path, os.O_RDONLY) for path in paths), lambda: once(way.readers), total)
    return reading.warm(lambda: once(way.readers, plan.seconds, again=True), total, lambda: once(1))


def _by_size(photos: Sequence[Photo]) -> dict[str, Sequence[Photo]]:
    """All files; and the smallest and the largest quarter, where these differ by a factor of two or more."""
    ordered = sorted(photos, key=lambda photo: photo.bytes)
    quarter = len(ordered) // 4
    groups: dict[str, Sequence[Photo]] = {"files": photos}
    if quarter >= 8 and sum(p.bytes for p in ordered[-quarter:]) >= 2 * sum(p.bytes for p in ordered[:quarter]):
        groups |= {"smallest files": ordered[:quarter], "largest files": ordered[-quarter:]}
    return groups


def _sample_block(photos: Sequence[Photo]) -> int:
    """The mean file, in whole pages: what one read from a packed dataset brings in."""
    return max(1, round(sum(photo.bytes for photo in photos) / len(photos) / _PAGE)) * _PAGE if photos else 0


@contextmanager
def scratch(folder: Path, size: int) -> Iterator[tuple[int, int]]:
    """An unnamed file of random bytes, which disappears when it is closed, however the process ends.

    Yields:
        (file descriptor, size); smaller than asked for where the disk is nearly full.

    Raises:
        OSError: the folder is read-only. Refused: less than 64 MiB are free on its disk.
    """
    free = shutil.disk_usage(folder).free
    size = min(size, free // 4 // _MIB * _MIB)
    if size < 16 * _MIB:
        raise Refused(f"only {free // _MIB} MiB are free on its disk")
    fill = random.Random(0)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(size // _MIB):
            file.write(fill.randbytes(_MIB))
        file.flush()
        os.fsync(file.fileno())
        yield file.fileno(), size
