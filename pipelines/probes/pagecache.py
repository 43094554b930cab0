"""The page cache of a file: evict it, and measure how much is cached. Needs no root."""

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path

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


def evict(fd: int) -> None:
    """Evict the file's pages. Dirty pages are written first, or they would stay."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_share(fd):
        with suppress(OSError):  # a file system that is only read may have none
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(fd: int) -> float | None:
    """Return the share of the file's pages in the page cache (mincore).

    None if the kernel does not provide it. Linux tells only who owns the file or may write it, and
    says "all of it" to everybody else (mm/mincore.c, can_do_mincore).
    """
    size = os.fstat(fd).st_size
    if size == 0:
        return 0.0
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


def readahead_bytes(fd: int) -> int:
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
