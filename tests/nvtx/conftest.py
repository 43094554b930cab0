"""A real NVTX tool (tool.c), and a program run under it."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import pytest
from warm_python import WarmPython

from feedline.profiler import nvtx_ranges

SOURCE = pathlib.Path(__file__).with_name("tool.c")


class Call(NamedTuple):
    """One line of the tool's file."""

    pid: int
    tid: int
    domain: str
    what: str  # push or pop
    name: str = ""
    payload: str = ""


class Seen(NamedTuple):
    calls: list[Call]
    stdout: str

    def told(self, pid: int | None = None) -> list[str]:
        """The calls of one process (None: of all), as "push NAME" and "pop"."""
        return [f"{c.what} {c.name}".strip() for c in self.calls if pid in (None, c.pid)]


Run = Callable[..., Seen]


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc here, and the NVTX tool that listens is written in C")
    library = tmp_path_factory.mktemp("tool") / "tool.so"
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o", library, SOURCE],
        check=True,
    )
    return library


@pytest.fixture
def under_tool(tool: pathlib.Path, tmp_path: pathlib.Path) -> Run:
    """Runs a program with the tool injected, in a warm Python if one is given; environment
    variables can be added.
    """

    def run(program: str, warm: WarmPython | None = None, **more: str) -> Seen:
        script, log = tmp_path / "program.py", tmp_path / "calls"
        script.write_text(textwrap.dedent(program))
        environment = {
            **os.environ,
            nvtx_ranges._INJECTION: str(tool),
            "NVTX_TOOL_LOG": str(log),
            **more,
        }
        if warm is not None:
            done = warm.run(script, folder=tmp_path, environment=environment)
        else:
            done = subprocess.run(
                [sys.executable, script],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        lines = log.read_text().splitlines() if log.exists() else []
        fields = [line.split("\t") for line in lines]
        return Seen([Call(int(f[0]), int(f[1]), *f[2:]) for f in fields], done.stdout)

    return run
