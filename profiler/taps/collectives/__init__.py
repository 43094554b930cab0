"""Records every collective of torch.distributed, with kernels in torch's dispatcher (tap.py).

Nothing is attached before the program has initialised torch.distributed.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from feedline.profiler import masks
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import ReportHook
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.collectives.groups import COLLECTIVES_HOOK
from feedline.profiler.taps.patch import Patches

GIVES = "bytes, group, start and end of every collective, once torch.distributed is initialized"


class _Collectives:
    """Attaches the tap and the clock when a process group is created, and detaches them.

    Args:
        report: called when they are attached, and with the reason where they cannot be.
    """

    def __init__(self, report: ReportHook) -> None:
        self._report = report
        self._gives = GIVES
        self._tap: Any = None
        self._clock: Any = None
        self._left: list[Any] = []  # clocks of groups that are gone

    def attach(self, patches: Patches) -> None:
        """Wait for a process group.

        Raises:
            AttributeError: this torch makes its default group in another way.
        """
        if not dist.is_available():
            raise RuntimeError("this torch is built without torch.distributed")
        module = dist.distributed_c10d
        original = module._update_default_pg

        def _update_default_pg(pg: Any) -> None:
            if pg is None:
                self._before_destroy()
            original(pg)
            if pg is not None:
                self._initialised()

        patches.set(module, "_update_default_pg", _update_default_pg)
        if dist.is_initialized():
            self._initialised()

    def stop(self) -> None:
        """Detach the tap and end the thread."""
        for clock in [*self._left, *([self._clock] if self._clock is not None else [])]:
            clock.stop()
        self._clock, self._left = None, []
        tap, self._tap = self._tap, None
        if tap is not None and (unknown := tap.stop()):
            self._report(
                COLLECTIVES_HOOK, True, f"{self._gives}; {unknown:,} ends on a GPU are unknown"
            )

    def _initialised(self) -> None:
        if recorder.resume() is None:
            return
        recorder.may_pause = False  # ranks that pause in different steps could not be matched
        try:
            from feedline.profiler.taps.collectives.rank_clocks import start_clock
            from feedline.profiler.taps.collectives.tap import CollectiveTap

            if self._tap is None:
                tap = CollectiveTap(self._report)
                tap.attach()
                self._tap = tap
            backend = dist.get_backend() if dist.is_initialized() else "unknown"
            self._gives = (
                f"bytes, group, start and end of every collective ({backend}, "
                f"{dist.get_world_size()} ranks)"
            )
            self._report(COLLECTIVES_HOOK, True, self._gives)
            self._clock = start_clock(self._report, any(clock.measured for clock in self._left))
        except Exception as error:
            reraise_of_handler()
            self._report(COLLECTIVES_HOOK, False, masks.error(error))

    def _before_destroy(self) -> None:
        try:
            if self._clock is not None:
                self._clock.quit()
                self._left.append(self._clock)
                self._clock = None
            if self._tap is not None:
                self._tap.ends.let_go()
        except Exception as error:
            reraise_of_handler()
            self._report(COLLECTIVES_HOOK, False, masks.error(error))


def attach(report: ReportHook, patches: Patches) -> Callable[[], None]:
    """Attach to torch.distributed; returns a function that undoes everything except patches."""
    collectives = _Collectives(report)
    collectives.attach(patches)
    return collectives.stop
