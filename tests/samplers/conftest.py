import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import pytest

from feedline.profiler import clock
from feedline.profiler.samplers.source import GaugeSource

NOBODY = 65534


class Clock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


@pytest.fixture
def time_is(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(clock, "wall_ns", lambda: fake.ns)
    return fake


class Counting(GaugeSource):
    """A source whose gauges hold how often they were read."""

    name = "counting"

    def __init__(self, gauges: int = 1, fails_at: int = 1 << 60) -> None:
        super().__init__()
        self.gauges, self.fails_at, self.reads = gauges, fails_at, 0

    def prepare(self) -> str | None:
        self.units = {f"counting/{number}": "1" for number in range(self.gauges)}
        return None

    def read(self) -> dict[str, float]:
        self.reads += 1
        if self.reads >= self.fails_at:
            raise OSError(5, "Input/output error", "/proc/counting")
        return dict.fromkeys(self.units, float(self.reads))


@pytest.fixture
def counting() -> type[Counting]:
    return Counting


@pytest.fixture
def child() -> Iterator[Callable[[str], Popen[str]]]:
    """Start a Python program; its first line of output is awaited. It ends with the test."""
    started: list[Popen[str]] = []

    def start(program: str, *arguments: object) -> Popen[str]:
        process = Popen(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def without_root() -> Iterator[None]:
    """Without root's right to read everything."""
    user = os.geteuid()
    try:
        os.seteuid(NOBODY)
    except (
        PermissionError
    ):  # not root, or root without its capabilities: files are closed to us already
        pass
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    return without_root


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter; pytest's own are closed to them."""
    with TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a file of a made-up root folder; returns the root."""

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return tmp_path

    return write
