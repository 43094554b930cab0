"""Writes the records of one process into a memory-mapped file of bounded size (layout.py).

Nothing needs flushing: what was written is in the file, whatever kills the process (DataLoader
workers never reach atexit).

A segment keeps every record until it is full. Then it discards ("forgets") every second window of
WINDOW batches and continues; when it is full again, every second of the rest. Which windows it
keeps depends only on a hash of (epoch, batch), so the main process and its workers keep the same
ones. Discarded records are counted, so sums and histograms still include everything.
"""

import errno
import fcntl
import itertools
import operator
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

from feedline.profiler import masks
from feedline.profiler.deferred import deferred
from feedline.profiler.events import RECORD, UNMEASURED, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.files import single
from feedline.profiler.files.descriptor import Descriptor, Mapping
from feedline.profiler.files.own_folders import lock
from feedline.profiler.store.layout import (
    FIELDS,
    HISTOGRAMS_AT,
    PAGE,
    RECORDS_AT,
    TOTALS_AT,
    WINDOW,
    bin_of,
    header_of,
    page_of,
)
from feedline.profiler.store.segment_owner import own_file

_SUMS, _SUMS_BYTES = struct.Struct("<6q"), FIELDS * 8  # one row of what is forgotten
_pack, _RECORD_BYTES = RECORD.pack_into, RECORD.size  # in `add`, to look them up takes 30 ns
_WALL_AT, _EXTRA_AT, _NUMBER = 8, 48, struct.Struct("<q")  # in a record
_SOURCE = struct.Struct("<H")
_CHUNK_BYTES = 256 * 1024
_FIRST_CHUNK_BYTES = 32 * 1024  # a short-lived worker writes a few hundred records
_GENERATION = 1 << 32  # more than a file has slots
CAPACITY_BYTES = 8 * 1024 * 1024
_NAME_BYTES = 56  # of a name's record: its number and stage follow
# A name's record is kept for good, and its number has 16 bits: names that differ with each step
# (``feedline.stage(f"step {number}")``) would fill the file. These take a 16th of it.
_MOST_NAMES = 8192
MOST_STAGES = 4096  # of a program's own: there is room left for the names of all else
# Seconds to wait for another thread; half as long after each time in vain, and these at least.
_PATIENCE_S, _LEAST_PATIENCE_S = 1.0, 0.01
_MOVES = 2  # a record's end is found after at most this many thinnings; later it is only counted


def window_of(epoch: int, batch: int) -> int:
    """Return the scrambled number (0 to 65535) of a batch's window.

    It is Fibonacci hashing, so that its low bits are evenly distributed.
    """
    return ((epoch << 24) + batch // WINDOW) * 0x9E3779B97F4A7C15 >> 48 & 0xFFFF


def _stored_text(name: str) -> bytes:
    """Return what the file holds of a name."""
    text = masks.token(name).encode(errors="backslashreplace")[:_NAME_BYTES]
    return text.decode(errors="ignore").encode().rstrip(b"\0")


@dataclass(frozen=True)
class Mark:
    """A moment in a segment, for sums of what was recorded before it.

    Attributes:
        at: ns.
        forgotten: the sums of what was forgotten by then.
        generation: of the file, then.
    """

    at: int
    forgotten: bytes
    generation: int


class Written(NamedTuple):
    """What a segment has written since a look at it.

    Attributes:
        generation: of the file, as in ``Mark``.
        records: as they are in the file; zeros where there is only room.
        forgotten: the sums of what was forgotten by now.
    """

    generation: int
    records: bytes
    forgotten: bytes


class Segment:
    """Writes records; can be called from any thread and from signal handlers. ``add`` never raises.

    A signal's handler may interrupt a thread that is writing, and wait for another one (a checkpoint
    on preemption that joins its writer). What that one records meanwhile is only counted, after a
    wait: it would wait forever.

    Args:
        path: file to append to. If another live process uses it, the next free name with a number
            is taken instead.
        header: facts about this process for readers (JSON).
        capacity_bytes: room for records before windows are discarded.

    Raises:
        OSError: the file cannot be made, or the disk is full.
    """

    def __init__(
        self, path: Path, header: dict[str, object], capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        self.stopped: str | None = None  # why nothing more is written
        self.window = 0
        self._capacity = capacity_bytes // RECORD.size
        self._lock = threading.RLock()
        self._patience = _PATIENCE_S
        self._names: dict[str, int] = {}
        self._stored: dict[bytes, int] = {}  # the same by their texts in the file
        self._threads = {threading.get_ident(): 0}
        self._mapping: Mapping | None = None  # of the records that are written now
        self._generation = 0  # of the file, times _GENERATION: thinning moves records
        # by generation: a record's next slot; -1: forgotten; empty: long ago
        self._moved: list[memoryview] = []
        self.path, fd = own_file(path, header)
        self._file = Descriptor(fd, self.path.absolute())
        try:
            self._use_header(Mapping(fd, RECORDS_AT))
            self._adopt(os.fstat(fd).st_size - RECORDS_AT)
        except OSError:
            self._file.close()
            raise

    def add(
        self,
        stage: int,
        start: int,
        wall: int,
        cpu: int = UNMEASURED,
        runqueue: int = UNMEASURED,
        nbytes: int = 0,
        number: int = 0,
        extra: int = 0,
        source: int = 0,
        flags: int = 0,
    ) -> int | None:
        """Write one record, or only count it if its window is discarded, or the lock not to be had.

        Units as in events.RECORD_FIELDS. The wall of a span that has not ended is UNMEASURED until
        ``end``, also for readers after a kill.

        Returns:
            Its place, for ``end``; None if it is only counted.
        """
        # a with statement would cost 0.1 us more, of 1.4
        if not self._lock.acquire(False) and not self._waited():
            with suppress(ValueError):  # what the interrupted thread was closing
                self._count(stage, 1, wall, cpu, runqueue, nbytes, extra)
            return None
        try:
            window = self.window
            if window & self._stride_mask:
                self._count(stage, 1, wall, cpu, runqueue, nbytes, extra)
                return None
            slot = next(self._slots)
            if slot >= self._end:
                slot = self._grow()
                if window & self._stride_mask:  # just forgotten
                    self._count(stage, 1, wall, cpu, runqueue, nbytes, extra)
                    return None
            ident = get_ident()
            thread = self._threads.get(ident)
            if thread is None:
                thread = self._threads.setdefault(ident, min(len(self._threads), 255))
            at = (slot - self._begin) * _RECORD_BYTES
            _pack(
                self._chunk,
                at,
                start,
                wall,
                cpu,
                runqueue,
                nbytes,
                number,
                extra,
                source,
                window,
                flags,
                thread,
                stage,
            )
            return slot + self._generation
        except Exception as error:  # fail open: the training continues without this record
            reraise_of_handler()
            self._stop(error)
            return None
        finally:
            self._lock.release()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock. Raises TimeoutError: it is not to be had."""
        if not self._acquired():
            raise TimeoutError("another thread writes to the segment")
        try:
            yield
        finally:
            self._lock.release()

    def _acquired(self) -> bool:
        return self._lock.acquire(False) or self._waited()

    def _waited(self) -> bool:
        """Wait for the lock; returns whether it is held. A thread that never gets it goes on."""
        if self._lock.acquire(timeout=self._patience):
            self._patience = _PATIENCE_S
            return True
        self._patience = max(self._patience / 2, _LEAST_PATIENCE_S)
        return False

    def _count(
        self,
        stage: int,
        number: int,
        wall: int,
        cpu: int = 0,
        runqueue: int = 0,
        nbytes: int = 0,
        extra: int = 0,
    ) -> None:
        """Add to the sums of what is forgotten."""
        header, at = self._header, TOTALS_AT + stage * _SUMS_BYTES
        sums = _SUMS.unpack_from(header, at)
        more = (number, max(wall, 0), max(cpu, 0), max(runqueue, 0), nbytes, extra)
        _SUMS.pack_into(header, at, *map(operator.add, sums, more))

    def end(self, place: int | None, stage: int, wall: int, extra: int = 0) -> None:
        """Complete a record that ``add`` returned for a wall of UNMEASURED, once, from any thread.

        UNMEASURED again: it stays unknown, as where the lock is not to be had.
        """
        if not self._lock.acquire(False) and not self._waited():
            return
        try:
            slot = -1 if place is None else place - self._generation
            if self._begin <= slot < self._end:
                at = (slot - self._begin) * RECORD.size
                _NUMBER.pack_into(self._chunk, at + _WALL_AT, wall)
                if extra:
                    _NUMBER.pack_into(self._chunk, at + _EXTRA_AT, extra)
            else:
                self._end_far(place, stage, wall, extra)
        except Exception as error:
            reraise_of_handler()
            self._stop(error)
        finally:
            self._lock.release()

    def _end_far(self, place: int | None, stage: int, wall: int, extra: int) -> None:
        """End a record in a chunk that is not mapped any more, or moved, or forgotten."""
        generation, slot = divmod(-1 if place is None else place, _GENERATION)
        for moved in self._moved[generation:] if place is not None else ():
            slot = int(moved[slot]) if 0 <= slot < len(moved) else -1
        if place is None or slot < 0:
            self._count(stage, 0, wall, extra=extra)
            return
        at = RECORDS_AT + slot * RECORD.size
        os.pwrite(self._file.number(), _NUMBER.pack(wall), at + _WALL_AT)
        if extra:
            os.pwrite(self._file.number(), _NUMBER.pack(extra), at + _EXTRA_AT)

    def count(self, moments: Sequence[int], times: int = 1) -> None:
        """Add the durations of samples between moments (ns) to their histogram, ``times`` each.

        Durations <= 0 are ignored.
        """
        try:
            counts = self._histograms
            for begun, ended in pairwise(moments):
                if ended > begun:
                    counts[bin_of(ended - begun)] += times
        except ValueError:  # another thread has just closed the segment
            pass

    def take(self) -> bool:
        """Keep other threads from writing until ``give``; False: one is writing, maybe this one.

        A garbage collection may begin meanwhile, and a signal's handler may wait for it.
        """
        owned: bool = self._lock._is_owned()  # type: ignore[attr-defined]
        return not owned and self._lock.acquire(False)

    def give(self) -> None:
        """End what ``take`` began."""
        self._lock.release()

    @property
    def is_empty(self) -> bool:
        """Whether no record was written yet: the process has done nothing that is looked at."""
        return not self._allocated

    def name_id(self, name: str, most: int = _MOST_NAMES) -> int:
        """Return a number for this name in the ``source`` field of records of this file.

        0 is "no name", also where the lock is not to be had, or the file has all the names that it
        takes.

        Args:
            most: names of the file, from which on this one is not added.
        """
        known = self._names.get(name)
        if known is None:
            if not self._acquired():
                return 0
            try:  # of two threads that ask at once, one numbers it
                known = self._names.get(name)
                if known is None:
                    known = self._number_of(_stored_text(name), most)
                    if len(self._names) < _MOST_NAMES:
                        self._names[name] = known
            finally:
                self._lock.release()
        return known

    def _number_of(self, text: bytes, most: int) -> int:
        """Return the number of a name in the file, maybe one that an earlier process gave it."""
        number = self._stored.get(text)
        if number is None:
            if len(self._stored) >= most:
                return 0
            number = self._stored[text] = next(self._name_numbers)
            self._write_name(text, number)
        return number

    def _write_name(self, text: bytes, number: int) -> None:
        try:
            slot = next(self._slots)
            if slot >= self._end:
                slot = self._grow()
            at = (slot - self._begin) * RECORD.size
            RECORD.pack_into(self._chunk, at, 0, 0, 0, 0, 0, 0, 0, number, 0, 0, 0, 0)
            self._chunk[at : at + len(text)] = text
            self._chunk[at + RECORD.size - 1] = Stage.NAME
        except Exception as error:
            reraise_of_handler()
            self._stop(error)

    def mark(self, at: int) -> Mark:
        """Remember this moment, ns.

        Raises:
            OSError, ValueError: the segment is not to be had, or is closed.
        """
        with self._held():
            return Mark(at, bytes(self._header[TOTALS_AT:HISTOGRAMS_AT]), self._generation)

    def written_since(self, generation: int, number: int) -> Written:
        """Return what was written behind the first records, or all if windows were forgotten since.

        Args:
            generation: of the file, when these were looked at; -1: never.
            number: how many there were.

        Raises:
            OSError, ValueError: the file cannot be read, or is closed.
        """
        with self._held():
            file = self._file.number()
            at = RECORDS_AT + (number * RECORD.size if generation == self._generation else 0)
            records = os.pread(file, os.fstat(file).st_size - at, at)
            forgotten = bytes(self._header[TOTALS_AT:HISTOGRAMS_AT])
            return Written(self._generation, records, forgotten)

    def add_for_good(self, stage: int, start: int, wall: int, **fields: int) -> int | None:
        """Write a record of a stage that is kept for good, even if its window is discarded.

        Returns as ``add``.
        """
        if not self._acquired():
            return None
        try:
            window, self.window = self.window, 0
            place = self.add(stage, start, wall, **fields)
            self.window = window
            return place
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Stop writing and do not touch the file.

        It is for the child of a fork, whose parent continues to write.
        """
        for name in ("add", "end", "count", "name_id"):
            setattr(self, name, _nothing)

    def close(self) -> None:
        """Close the file; its records stay.

        While another thread writes and does not go on, it stays open.
        """
        self.forget()
        with suppress(TimeoutError), self._held():
            self._totals.release()
            self._histograms.release()
            for mapping in (self._mapping, self._header_mapping):
                if mapping is not None:
                    mapping.close()
            self._file.close()

    def _use_header(self, mapping: Mapping) -> None:
        self._header_mapping, self._header = mapping, mapping.view
        numbers = self._header.cast("q")
        self._totals = numbers[TOTALS_AT // 8 : HISTOGRAMS_AT // 8]
        self._histograms = numbers[HISTOGRAMS_AT // 8 : RECORDS_AT // 8]

    def _adopt(self, record_bytes: int) -> None:
        """Go on after the records that an earlier process left in the file.

        It was last epoch's worker of this number.
        """
        written = 0
        if record_bytes:
            old = os.pread(self._file.number(), record_bytes, RECORDS_AT)
            stages = old[RECORD.size - 1 :: RECORD.size]
            written = len(stages.rstrip(b"\0"))
            slot = stages.find(Stage.NAME)
            while slot >= 0:
                begin = slot * RECORD.size
                text_end = begin + _NAME_BYTES
                (number,) = _SOURCE.unpack_from(old, text_end)
                self._stored[old[begin:text_end].rstrip(b"\0")] = number
                slot = stages.find(Stage.NAME, slot + 1)
        self._name_numbers = itertools.count(max(self._stored.values(), default=0) + 1)
        self._stride_mask = self._totals[0]
        self._allocated = record_bytes // RECORD.size
        self._begin = self._end = self._allocated
        if self._allocated > written:
            self._map_at(written)
        self._slots = itertools.count(written)

    def _grow(self) -> int:
        """Make room, by a new chunk or by forgetting; returns the slot to use.

        Disk blocks are reserved before they are mapped: a write to a sparse map on a full disk
        would kill the training with SIGBUS.
        """
        if self._end < self._allocated:
            self._map_at(self._end)
            self._slots = itertools.count(self._begin)
        elif self._allocated >= self._capacity:
            self._thin()
        else:
            size = _CHUNK_BYTES if self._allocated else _FIRST_CHUNK_BYTES
            os.posix_fallocate(
                self._file.number(), RECORDS_AT + self._allocated * RECORD.size, size
            )
            self._allocated += size // RECORD.size
            self._map(self._allocated - size // RECORD.size, self._allocated)
            self._slots = itertools.count(self._begin)
        return next(self._slots)

    def _map_at(self, slot: int) -> None:
        """Map what comes next of the room that is there, no more than a chunk.

        Pages that were written once stay resident.
        """
        begin = slot // (PAGE // RECORD.size) * (PAGE // RECORD.size)
        self._map(begin, min(begin + _CHUNK_BYTES // RECORD.size, self._allocated))

    def _map(self, begin: int, end: int) -> None:
        before = self._mapping
        self._mapping = Mapping(
            self._file.number(), (end - begin) * RECORD.size, RECORDS_AT + begin * RECORD.size
        )
        self._chunk, self._begin, self._end = self._mapping.view, begin, end
        if before is not None:
            before.close()

    def _thin(self) -> None:
        """Forget every second window (again, if that made no room), or merge rests.

        All goes into a new file that takes the old one's place in one rename; until then the old one
        is left as it is, for a full disk or a kill.
        """
        # needs numpy, which a program imports after it has set how many threads that may use
        from feedline.profiler.store.thinning import thin

        room = self._allocated * RECORD.size
        before = Mapping(self._file.number(), RECORDS_AT + room)
        thinned = thin(before.view[RECORDS_AT:], self._stride_mask, self._capacity)
        if thinned is None:
            raise OSError(
                errno.EFBIG, "the segment is full of records that must be kept", str(self.path)
            )
        with ExitStack() as stack:
            fd = stack.enter_context(single.replacement(self.path))
            lock(fd, fcntl.LOCK_EX)
            os.posix_fallocate(fd, 0, RECORDS_AT + room)
            kept = 0
            for rows in thinned.kept():
                os.pwrite(fd, rows, RECORDS_AT + kept * RECORD.size)
                kept += len(rows) // RECORD.size
            os.pwrite(fd, thinned.header_after(bytes(self._header)), 0)
            header, moved = Mapping(fd, RECORDS_AT), thinned.moved()
            with deferred():  # or Ctrl-C leaves this process with a file that has no name any more
                stack.close()
                self._totals.release()
                self._histograms.release()
                self._header_mapping.close()
                self._file.close()
                self._file = Descriptor(fd, self.path.absolute())
                self._use_header(header)
                self._stride_mask = thinned.stride_mask
                self._moved.append(moved)
                self._moved[:-_MOVES] = [moved[:0]] * len(self._moved[:-_MOVES])
                self._generation += _GENERATION
                self._map_at(kept)
                self._slots = itertools.count(kept)
        del thinned  # a mapping with references cannot be unmapped
        before.close()

    def _stop(self, error: Exception) -> None:
        if self.stopped is None:
            self.stopped = masks.error(error)
            self.forget()
            try:
                header = header_of(bytes(self._header[:PAGE]))
                self._header[:PAGE] = page_of({**header, "stopped": self.stopped})
            except Exception:
                reraise_of_handler()


def _nothing(*_: object, **__: object) -> Any:
    return 0
