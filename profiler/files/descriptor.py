"""File descriptors inside another program, which may close them and reuse their numbers.

``os.closerange`` closes them all. A descriptor is therefore checked before it is written to,
resized or closed, and mappings keep none: ``mmap.mmap`` holds a copy of its descriptor before
Python 3.13, and closes that number whoever has it by then.
"""

import ctypes
import errno
import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

from feedline.profiler.files import single

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
# references to an unused object: the attribute and the argument of getrefcount
_UNUSED_REFERENCES = 2


class Descriptor:
    """An open file.

    Args:
        number: as ``os.open`` returned it.
        path: what it is opened again under; None: it is not.
        closes: with this object.
    """

    def __init__(
        self, number: int, path: "str | os.PathLike[str] | None" = None, closes: bool = False
    ) -> None:
        self._number, self._path, self._closes = number, path, closes
        self._identity = _identity(number)

    @property
    def is_ours(self) -> bool:
        """Whether the number still refers to the file."""
        try:
            return _identity(self._number) == self._identity
        except OSError:
            return False

    def number(self) -> int:
        """Return the number, for immediate use.

        If the program has closed it, the file is opened again.

        Raises:
            OSError: it cannot be.
        """
        if not self.is_ours:
            lost = OSError(
                errno.EBADF,
                "the program closed the descriptor",
                None if self._path is None else str(self._path),
            )
            if self._path is None:
                raise lost
            number = single.reopen(Path(self._path))
            if _identity(number) != self._identity:
                os.close(number)
                raise lost
            self._number = number
        return self._number

    def close(self) -> None:
        """Close it, unless the program already has."""
        if self.is_ours:
            os.close(self._number)
        self._identity = None

    def __del__(self) -> None:
        if getattr(self, "_closes", False):
            with suppress(Exception):  # at the interpreter's end, modules may be gone
                self.close()


def _identity(number: int) -> tuple[int, int] | None:
    """Return the device and inode of an open file.

    Raises:
        OSError: nothing is open under the number.
    """
    about = os.fstat(number)
    return about.st_dev, about.st_ino


class Mapping:
    """Bytes of a file mapped into memory, shared with readers, without an open descriptor.

    Args:
        number: of an open file; it may be closed afterwards.
        size: bytes.
        offset: of the first one in the file, in bytes.

    Attributes:
        view: to read and write.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, number: int, size: int, offset: int = 0) -> None:
        # from the beginning of a page of memory: kernels have pages of 4, 16 or 64 KiB
        extra = offset % mmap.ALLOCATIONGRANULARITY
        size, offset = size + extra, offset - extra
        address = _libc.mmap(
            None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, number, offset
        )
        if address in (None, _FAILED):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address: int | None = address
        self._bytes = (ctypes.c_char * size).from_address(address)
        self.view = memoryview(self._bytes).cast("B")[extra:]

    def close(self) -> None:
        """Unmap it. If a part of it is still in use, it stays until the process ends."""
        self.view.release()
        address, self._address = self._address, None
        if address is not None and sys.getrefcount(self._bytes) == _UNUSED_REFERENCES:
            _libc.munmap(address, len(self._bytes))

    def __del__(self) -> None:
        # not with suppress(): at the interpreter's end, what this module has imported may be gone
        try:
            self.close()
        except Exception:
            pass
