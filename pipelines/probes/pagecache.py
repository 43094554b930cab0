"""The page cache of a file: evict it, and measure how much is cached. Needs no root."""

import ctypes
import mmap
import os
from collections.abc import Iterable
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
    if resident_share(fd) != 0.0:
        with suppress(OSError):  # a file system that is only read may have none
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(fd: int) -> float | None:
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
            shares.append(resident_share(file.fileno()))
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


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
