"""Ends a training after a number of updates, between two steps: a short run, to be measured.

The process ends at once. Nothing of the program runs any more, neither ``finally``, ``atexit`` nor
its signal handlers: what they do at the end of a training (a last checkpoint, an upload) is not
meant for a trial of a few seconds.
"""

import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import filterfalse
from pathlib import Path
from typing import Any

from feedline.profiler import proc
from feedline.profiler.errors import RunDamaged
from feedline.profiler.fail_open import fail_open
from feedline.profiler.ranks import RankPlace
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.session.hooks import Hooks
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest

_PATIENCE_S = 60.0  # for the other ranks, which stop after the same update
_exit = os._exit  # without the recorder's own callbacks


@dataclass(frozen=True)
class StopAfter:
    """``200`` (updates; optimizers in turn make one) or ``20s`` (after the first update, and after an update)."""

    updates: int | None
    seconds: float = math.inf

    @classmethod
    def parse(cls, text: str) -> "StopAfter":
        """Read the limit.

        Raises ValueError.
        """
        number = re.fullmatch(r"(\d{1,9})(s?)", text)
        if number is None or not int(number[1]):
            raise ValueError(
                f"expected a number of updates, or of seconds such as 20s, got {text[:40]!r}"
            )
        return cls(None, float(number[1])) if number[2] else cls(int(number[1]))

    def attach(self, hooks: Hooks, stop: Callable[[], None], run: Path, place: RankPlace) -> None:
        """Count updates once torch is imported.

        Args:
            hooks: that wait for torch.
            stop: ends the recording.
            run: its folder, in which other ranks are found.
            place: of this process among them.
        """
        counted, began, counting = 0, 0.0, os.getpid()
        group: set[int] = set()  # optimizers that have made their update of this step

        def count(optimizer: Any, *_: Any) -> None:
            nonlocal counted, began
            if os.getpid() != counting:  # a fork, which counts its own
                return
            if not group or id(optimizer) in group:
                counted += 1
                group.clear()
            group.add(id(optimizer))
            began = began or time.monotonic()
            if (
                self.updates is not None and counted >= self.updates
            ) or time.monotonic() - began >= self.seconds:
                _end(stop, run, place)

        def arrived() -> None:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            hooks.add_undo(register_optimizer_step_post_hook(count).remove)

        hooks.when_imported("torch", arrived)


def _end(stop: Callable[[], None], run: Path, place: RankPlace) -> None:
    """End this process, and those below it, once all ranks have come as far.

    Each may still need data of another. What unlinks shared memory ends by itself.
    """
    torch: Any = sys.modules["torch"]
    with fail_open:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    stop()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and not all(
        _has_ended(run, rank, place.restart) for rank in range(place.world_size)
    ):
        time.sleep(0.05)
    with fail_open:
        sys.stdout.flush()
        sys.stderr.flush()
    with suppress(ValueError):  # not the main thread
        # torch's handler raises when a loader's worker is killed
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in filterfalse(proc.tidies_up, descendants(os.getpid())):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    _exit(0)


def _has_ended(run: Path, rank: int, restart: int) -> bool:
    """Return whether the recording of a rank is complete."""
    with suppress(OSError, RunDamaged):
        return Manifest.read(rank_folder(run, rank, restart)).ended
    return False
