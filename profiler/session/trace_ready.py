"""``feedline.on_trace_ready``: writes traces of torch.profiler for ``feedline ingest``."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import ranks
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.files import output, single
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from torch.profiler import profile


def on_trace_ready(folder: "str | os.PathLike[str]") -> "Callable[[profile], None]":
    """Return a handler that writes each trace of torch.profiler into a folder, compressed, as ``rank<R>-<step>.json.gz``.

    Example::

        with torch.profiler.profile(on_trace_ready=feedline.on_trace_ready("traces"), schedule=...) as profiler:
            train(profiler)

    Afterwards ``feedline ingest traces/rank*-<step>.json.gz`` shows them; rank 0 prints this command once. Existing files are never
    replaced: the next name is ``rank<R>-<step>.2.json.gz``. If the folder cannot be written to, one line says so; the training continues.

    Args:
        folder: created when the first trace is ready. For ranks on several hosts, use a shared folder.
    """
    return _Writer(Path(folder))


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: set[str] = set()

    def __call__(self, profiler: "profile") -> None:
        try:
            written = self._write(profiler)
        except Exception as error:
            reraise_of_handler()
            why = (
                error.strerror if isinstance(error, OSError) else None
            ) or f"{type(error).__name__}: {error}"
            self._say_once(
                "failed",
                f"cannot write the trace into {self._folder} ({why}): name another folder, or "
                f"free some space",
            )
        else:
            if _rank() == 0:
                self._say_once("next", f"next: feedline ingest {written}")

    def _write(self, profiler: "profile") -> Path:
        """Write one trace. Returns the files of all ranks, as a pattern for a shell."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._free(f"rank{_rank()}-{profiler.step_num}")
        with single.replacing_path(path, output.SHARED) as part:
            profiler.export_chrome_trace(str(part))
        return path.with_name(
            path.name.replace(f"rank{_rank()}-", "rank*-" if _world() > 1 else f"rank{_rank()}-", 1)
        )

    def _free(self, stem: str) -> Path:
        """Return the first name that no file has, such as rank0-5.json.gz, rank0-5.2.json.gz."""
        path, number = self._folder / f"{stem}.json.gz", 1
        while path.exists():
            number += 1
            path = self._folder / f"{stem}.{number}.json.gz"
        return path

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            say(text)


def _rank() -> int:
    """Return the rank of this process.

    It comes from torch.distributed if it is initialised, else from the launcher's environment.
    """
    return _distributed("get_rank", ranks.place().rank)


def _world() -> int:
    """Return the number of ranks."""
    return _distributed("get_world_size", ranks.place().world_size)


def _distributed(what: str, otherwise: int) -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, what)())
    return otherwise
