"""The program that reads files one by one, or blocks of one file.

It is a separate process, like a worker of a DataLoader. It runs without site packages and imports
nothing of feedline, torch or numpy, so that a start takes milliseconds. It gets jobs on its standard
input and answers on its standard output, both in Python's marshal format, until the input ends:

    in   (name in ``_JOBS``, arguments of its function ...)
    out  "ready": the file is open, nothing was read
    in   one byte: GO or CALLED_OFF
    out  (units, start ns, end ns, CPU ns, bytes that came from the disk or None), or the text of an error
"""

import marshal
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence

# advised: MADV_RANDOM, as LMDB's MDB_NORDAHEAD does
READ, MMAP, ADVISED = "read", "mmap", "mmap advised"
GO, CALLED_OFF = b"+", b"-"
_UNCHECKED_BYTES = 64 * 1024  # bytes between two looks at the clock
_Begin = Callable[[], int]  # waits for the go and returns the time in ns
_Done = tuple[int, int]  # units, the time in ns


def _read_blocks(
    begin: _Begin,
    limit_ns: int,
    again: bool,
    path: str,
    block: int,
    offsets: Sequence[int],
    how: str,
) -> _Done:
    """Copy the blocks at these offsets into a buffer, until done or for ``limit_ns``.

    A mapping is made at the start and kept until the end, as LMDB and Arrow keep theirs: page
    faults are paid the first time through. The buffer begins with a page: 16 bytes later, where
    malloc puts a large one, some processors copy at a fifth of the rate.

    Args:
        begin: waits for the go and returns the time in ns.
        limit_ns: when to end.
        again: start over when done, so that readers at once all read until the end.
        path: of the file.
        block: bytes.
        offsets: of the blocks.
        how: READ, MMAP or ADVISED.

    Returns:
        Bytes, and the time in ns.
    """
    step, done = max(1, _UNCHECKED_BYTES // block), 0
    with open(path, "rb", buffering=0) as file:
        buffer = memoryview(mmap.mmap(-1, block))
        buffer[:] = bytes(block)
        until = begin() + limit_ns
        copy = _reads(file.fileno(), buffer) if how == READ else _faults(file.fileno(), buffer, how)
        while True:
            for first in range(0, len(offsets), step):
                few = offsets[first : first + step]
                copy(few)
                done += block * len(few)
                if (now := time.perf_counter_ns()) > until:
                    return done, now
            if not again or not offsets:
                return done, time.perf_counter_ns()


def _reads(fd: int, buffer: memoryview) -> Callable[[Sequence[int]], None]:
    buffers, preadv = [buffer], os.preadv

    def copy(offsets: Sequence[int]) -> None:
        for offset in offsets:
            preadv(fd, buffers, offset)

    return copy


def _faults(fd: int, buffer: memoryview, how: str) -> Callable[[Sequence[int]], None]:
    mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    if how == ADVISED:
        mapping.madvise(mmap.MADV_RANDOM)
    view, block = memoryview(mapping), len(buffer)

    def copy(offsets: Sequence[int]) -> None:
        for offset in offsets:
            buffer[:] = view[offset : offset + block]

    return copy


def _read_files(begin: _Begin, limit_ns: int, again: bool, paths: Sequence[str], how: str) -> _Done:
    """Open, read and close each file, as a dataset with a file per sample does.

    Arguments are as for ``_read_blocks``; returns files, and the time in ns.
    """
    done, until = 0, begin() + limit_ns
    while True:
        for path in paths:
            _read_file(path, how)
            done += 1
            if (now := time.perf_counter_ns()) > until:
                return done, now
        if not again or not paths:
            return done, time.perf_counter_ns()


def _read_file(path: str, how: str) -> int:
    """Read a file, and return its bytes."""
    with open(path, "rb") as file:
        if how == READ:
            return len(file.read())
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            return len(mapping[:])


_JOBS: dict[str, Callable[..., _Done]] = {"blocks": _read_blocks, "files": _read_files}


def _disk_bytes() -> int | None:
    """Return the bytes that this process has read from the disk so far.

    From /proc/self/io, read_bytes; None if the kernel does not provide it.
    """
    try:
        with open("/proc/self/io", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"read_bytes"))
    except (OSError, StopIteration, ValueError):
        return None


def _measured(
    name: str, arguments: Sequence[object], wait: Callable[[], object]
) -> tuple[int, int, int, int, int | None]:
    """Do one job; ``wait`` returns when it should begin."""
    start, cpu, disk = 0, 0, None

    def begin() -> int:
        nonlocal start, cpu, disk
        wait()
        cpu, disk, start = time.process_time_ns(), _disk_bytes(), time.perf_counter_ns()
        return start

    units, end = _JOBS[name](begin, *arguments)
    after = _disk_bytes()
    return (
        units,
        start,
        end,
        time.process_time_ns() - cpu,
        None if disk is None or after is None else after - disk,
    )


def main() -> None:
    """Do jobs until the input ends."""
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer

    def answer(what: object) -> None:
        marshal.dump(what, answers)  # type: ignore[arg-type]
        answers.flush()

    def wait() -> None:
        answer("ready")
        if jobs.read(1) != GO:
            raise RuntimeError("called off")

    try:
        while True:
            name, *arguments = marshal.load(jobs)
            try:
                result: object = _measured(name, arguments, wait)
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
            answer(result)
    except (EOFError, BrokenPipeError):  # the process that asked is gone
        os._exit(0)  # without the flush, which would fail


if __name__ == "__main__":
    main()
