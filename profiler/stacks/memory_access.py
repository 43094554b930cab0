"""Reads the memory of a process of the same user (process_vm_readv(2)), also its own."""

import ctypes
import errno
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PTRACER = 0x59616D61
_words = {count: struct.Struct(f"<{count}Q") for count in range(1, 129)}


class _Block(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class ProcessMemory:
    """The memory of a process.

    Args:
        pid: of it.
        most: bytes that one reading may have.
    """

    def __init__(self, pid: int, most: int = 1 << 18) -> None:
        self.pid, self.most = pid, most
        self._buffer = ctypes.create_string_buffer(most)
        self._view = memoryview(self._buffer).cast("B")
        self._here = _Block(ctypes.addressof(self._buffer), most)
        self._there = _Block(0, 0)
        self._arguments = (pid, ctypes.byref(self._here), 1, ctypes.byref(self._there), 1, 0)

    def read(self, address: int, size: int) -> memoryview:
        """Return bytes of it, valid until the next reading: fewer where its memory ends.

        Raises:
            OSError: nothing is there, there is no such process, or it must not be read.
        """
        self._here.size = self._there.size = min(size, self.most)
        self._there.address = address
        got = _libc.process_vm_readv(*self._arguments)
        if got <= 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))  # PermissionError where it must not be read
        return self._view[:got]

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Return unsigned numbers of 64 bits. Raises OSError as ``read``, and for fewer bytes."""
        view = self.read(address, 8 * count)
        if len(view) < 8 * count:
            raise OSError(errno.EFAULT, "the memory ends there")
        return _words[count].unpack_from(view)


def allow(reader: int) -> None:
    """Let another process read this one's memory where Yama forbids it to all but parents.

    Does nothing on other systems. The kernel keeps one choice of a process: what the program has
    chosen itself is lost.

    Args:
        reader: pid of it, or _ANYONE of stacks/targets.py.
    """
    _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(reader), 0, 0, 0)
