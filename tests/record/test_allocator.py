import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import GLIBC

from feedline.profiler.session.session import _allocator

ASK = """
import ctypes, sys
[ctypes.CDLL(name) for name in sys.argv[1:]]
from feedline.profiler.session.session import _allocator
print(_allocator())
"""


def said(*libraries: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", ASK, *libraries], capture_output=True, text=True, check=True
    ).stdout.strip()


@GLIBC
def test_it_is_the_c_librarys():
    assert said() == _allocator() == os.confstr("CS_GNU_LIBC_VERSION")


@pytest.mark.parametrize("name", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so"])
def test_another_one_is_named(name, tmp_path):
    here = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libm.so" in line or "/libm-" in line
    )
    library = shutil.copy(here, tmp_path / name)

    assert said(Path(library)) in name
