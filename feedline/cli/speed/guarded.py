"""A trial of a training changes no file but its own: it is given a folder for its output, and the kernel refuses all others."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from feedline.cli import write_guard
from feedline.profiler.errors import FixError

OUT = "{out}"
SAFE = 3  # version of Landlock from which on a file cannot be truncated either
SYSTEM = ("/dev", "/proc")
#: Folders that programs share, caches above all: where they are, unless a variable says so.
CACHES = {
    "XDG_CACHE_HOME": "~/.cache",
    "HF_HOME": "~/.cache/huggingface",
    "TORCH_HOME": "~/.cache/torch",
    "TRITON_HOME": "~/.triton",
    "CUDA_CACHE_PATH": "~/.nv",
    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
    "TORCHINDUCTOR_CACHE_DIR": "",
    "TRITON_CACHE_DIR": "",
    "NUMBA_CACHE_DIR": "",
    "MPLCONFIGDIR": "~/.config/matplotlib",
}
EVERYTHING = Path("/")


@dataclass(frozen=True)
class Guard:
    """Where a trial may write.

    Attributes:
        command: what to put before the trial's.
        out: a new folder, which stands for ``{out}`` in its arguments. It is removed after the trial.
        temporary: its folder for temporary files.
    """

    command: list[str]
    out: Path
    temporary: Path


def check(writable: Sequence[Path]) -> None:
    """Check that files can be protected from a trial, unless the user does not ask for it.

    Raises:
        FixError: the kernel cannot, or a folder to write to does not exist.
    """
    for folder in writable:
        if not folder.exists():
            raise FixError(f"--writable {folder}: no such folder")
    if EVERYTHING not in writable and write_guard.version() < SAFE:
        raise FixError(
            "this kernel cannot keep a trial from overwriting files (it has no Landlock, or one before Linux 6.2): make sure that the "
            "training writes only to {out}, and add --writable /"
        )


@contextmanager
def guard(run: Path, writable: Sequence[Path]) -> Iterator[Guard]:
    """Folders for one trial, removed after it.

    Args:
        run: folder of its recording.
        writable: what else it may change.
    """
    with tempfile.TemporaryDirectory(prefix="feedline-") as made:  # short: sockets of multiprocessing lie below it
        own = Path(made)
        out, temporary = own / "out", own / "tmp"
        for folder in (out, temporary):
            folder.mkdir()
        places = [own, run, *writable, *caches(), *(Path(place) for place in SYSTEM if os.path.isdir(place))]
        before = [sys.executable, "-I", write_guard.__file__, *map(str, places), "--"] if EVERYTHING not in writable else []
        yield Guard(before, out, temporary)


def caches() -> list[Path]:
    """Those that exist."""
    named = [os.environ.get(name) or os.path.expanduser(usual) for name, usual in CACHES.items()]
    return [Path(name) for name in dict.fromkeys(named) if name and os.path.isdir(name)]
