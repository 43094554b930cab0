"""Versions of Python and of the libraries that the program has imported, as these report them, and whose malloc the process has."""

import os
import platform
import re
import sys
from contextlib import suppress

#: Name in the manifest -> module. Package metadata would know them too, at 30 ms for the program.
_VERSIONED = {
    "feedline": "feedline",
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "pillow": "PIL",
    "opencv-python": "cv2",
    "torchdata": "torchdata",
    "lightning": "lightning",
    "pytorch-lightning": "pytorch_lightning",
    "transformers": "transformers",
    "timm": "timm",
}
_VERSION = re.compile(r"\d[\w.+!-]{0,63}", re.ASCII)  # a module of the program's own may have such a name, and say anything


def versions() -> dict[str, str]:
    """Name -> version."""
    by_name = {"python": platform.python_version()}
    for name, module in _VERSIONED.items():
        with suppress(Exception):
            version = str(sys.modules[module].__version__)
            if _VERSION.fullmatch(version):
                by_name[name] = version
    return by_name


_OTHER_ALLOCATORS = re.compile(rb"/lib(jemalloc|tcmalloc|mimalloc|hoard)[^/\n]*\.so")  # that programs are started with, in LD_PRELOAD


def allocator() -> str:
    """Return ``glibc 2.36``, or the library that is loaded beside it, such as ``jemalloc``; "": not known."""
    with suppress(OSError, ValueError, AttributeError):
        with open("/proc/self/maps", "rb") as maps:
            other = _OTHER_ALLOCATORS.search(maps.read())
        return other[1].decode() if other else os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
