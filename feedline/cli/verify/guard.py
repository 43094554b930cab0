"""Keeps a trial from changing other files.

It is given a folder for its output, and the kernel refuses all others.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from feedline.cli.verify import write_guard

OUT = "{out}"
# CUDA names its threads in /proc/PID/task/*/comm, and does not start if it cannot
_SYSTEM_FOLDERS = ("/dev", "/proc")
#: Folders that programs share, caches above all: where they are, unless a variable says so.
_CACHES = {
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
#: Of a run that MLflow is told to continue.
_CONTINUED = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME")


@dataclass(frozen=True)
class _TrialGuard:
    """Where a trial may write.

    Attributes:
        command: what to put before the trial's.
        out: a new folder, which stands for ``{out}`` in its arguments. It is removed after the
            trial.
        environment: the trial's.
    """

    command: list[str]
    out: Path
    environment: dict[str, str]


@contextmanager
def out_folder() -> Iterator[Path]:
    """Make the folder for ``{out}`` of a training that may write anywhere, removed after it."""
    with tempfile.TemporaryDirectory(prefix="feedline-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def guard(run: Path, writable: Sequence[Path]) -> Iterator[_TrialGuard]:
    """Make the folders for one trial, removed after it.

    Args:
        run: folder for its recording. It exists.
        writable: what else it may change.
    """
    # a short name: sockets of multiprocessing lie below it
    with tempfile.TemporaryDirectory(prefix="feedline-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        out, temporary = root / "out", root / "tmp"
        for path in (out, temporary):
            path.mkdir()
        allowed = [
            root,
            run,
            *writable,
            *_caches(os.environ),
            *(Path(name) for name in _SYSTEM_FOLDERS if os.path.isdir(name)),
        ]
        yield _TrialGuard(
            [sys.executable, "-I", write_guard.__file__, *map(str, allowed), "--"],
            out,
            _environment(out, temporary),
        )


def _caches(variables: Mapping[str, str]) -> list[Path]:
    """Return the caches that exist.

    One that also holds the working or home folder is left out, as with ``HF_HOME=/workspace``.
    """
    names = [
        variables.get(name) or os.path.expanduser(default) for name, default in _CACHES.items()
    ]
    folders = [Path(name) for name in dict.fromkeys(names) if name and os.path.isdir(name)]
    protected = [Path.cwd(), Path(os.path.realpath(os.path.expanduser("~")))]
    return [
        folder
        for folder in folders
        if not any(place.is_relative_to(folder.resolve()) for place in protected)
    ]


def _environment(out: Path, temporary: Path) -> dict[str, str]:
    """Return a trial's variables.

    What it logs to W&B or MLflow stays in its temporary folder, and continues no run of theirs.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _CONTINUED}
    wandb = "disabled" if os.environ.get("WANDB_MODE") == "disabled" else "offline"
    # mlflow-skinny has none
    mlflow = (
        f"sqlite:///{temporary}/mlflow.db"
        if find_spec("sqlalchemy")
        else f"file://{temporary}/mlruns"
    )
    trackers = {"WANDB_MODE": wandb, "WANDB_DIR": str(temporary), "MLFLOW_TRACKING_URI": mlflow}
    return {**kept, **trackers, "FEEDLINE_OUT": str(out), "TMPDIR": str(temporary)}
