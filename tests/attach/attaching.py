"""Trainings that run while a test looks at them: where they are, and what is said of them."""

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
WITHOUT_US = {
    **{name: value for name, value in os.environ.items() if not name.startswith("FEEDLINE")},
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
#: Of a program that says nothing: it has begun.
BEGUN = "begun"

Start = Callable[..., "subprocess.Popen[str]"]


@functools.cache
def python_of(version: str) -> str | None:
    """Where a Python of this version is, such as 3.10, on the path or beside this one; None: no."""
    beside = Path(sys.base_prefix).parent.glob(f"*/bin/python{version}")
    for program in (shutil.which(f"python{version}"), *map(str, beside)):
        if program and subprocess.run([program, "-c", ""], capture_output=True).returncode == 0:
            return program
    return None


def other_python() -> str | None:
    """Where a Python of 3.11 or later is that is not of this one's version; None: nowhere."""
    others = (f"3.{minor}" for minor in (12, 11, 13, 14) if (3, minor) != sys.version_info[:2])
    return next((python for version in others if (python := python_of(version))), None)


def attach(pid: int, folder: Path, seconds: float = 10.0) -> dict:
    """What ``feedline attach`` says of a process, as JSON."""
    file = folder / f"{time.monotonic_ns()}.json"
    done = subprocess.run(
        [sys.executable, "-m", "feedline", "attach", str(pid), "--seconds", str(seconds)]
        + ["--json", str(file)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(file.read_text()), "printed": done.stdout}
