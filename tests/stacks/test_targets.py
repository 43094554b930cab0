"""Whom a recorded process allows to read its memory.

The systems that tests run on have no Yama, so what it would be told is noted.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feedline.profiler.files import owned
from feedline.profiler.stacks import targets
from feedline.profiler.stacks.helper import _StackLog
from feedline.profiler.stacks.targets import _ANYONE, SampledProcess
from feedline.profiler.store.stack_format import MAIN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a rank whose helper, this process, has begun, where Yama is on."""
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    monkeypatch.setattr(targets, "_YAMA", scope)
    owned.claim(tmp_path / "rank0", "run")
    _StackLog(tmp_path / "rank0")
    return tmp_path / "rank0"


@contextmanager
def mapped(library: Path) -> Iterator[None]:
    library.write_bytes(bytes(mmap.PAGESIZE))
    with open(library, "r+b") as file, mmap.mmap(file.fileno(), 0):
        yield


@pytest.mark.parametrize(
    ("library", "name", "anyone"),
    [
        ("libmpi.so.40.30.4", MAIN, True),
        ("libmpi-2a5b91ce.so.12", MAIN, True),
        ("libopen-pal.so.40", MAIN, True),
        ("libuct_cma.so.0", MAIN, True),
        ("libmpi.so.40.30.4", "loader0-worker0", False),
        ("libmpicrypt.so.1", MAIN, False),
    ],
)
def test_where_peers_read_the_memory_of_a_rank_they_may_go_on(
    library: str,
    name: str,
    anyone: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed: list[int] = []
    monkeypatch.setattr(targets, "allow", allowed.append)

    with mapped(tmp_path / library):
        process = SampledProcess(folder, name)
        process.tick()
        process.tick()

    assert allowed == [_ANYONE if anyone else os.getpid()]
