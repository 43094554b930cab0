"""Whose malloc the process has, which decides what returns to the system when a program frees memory."""

import os
import re
from contextlib import suppress

_OTHERS = re.compile(rb"/lib(jemalloc|tcmalloc|mimalloc|hoard)[^/\n]*\.so")  # that programs are started with, in LD_PRELOAD


def allocator() -> str:
    """``glibc 2.36``, or the library that is loaded beside it, such as ``jemalloc``; "": not known."""
    with suppress(OSError, ValueError, AttributeError):
        with open("/proc/self/maps", "rb") as maps:
            other = _OTHERS.search(maps.read())
        return other[1].decode() if other else os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
