"""The taps attached in this process.

A tap that cannot attach is reported with the reason, and the training continues. The taps of a
loader's workers are in taps/worker.py; libraries used inside samples are listed in
taps/operations/__init__.py.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import masks, message
from feedline.profiler.arrivals import arrivals
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.record.detail import ProfilerWindow
from feedline.profiler.taps import operations
from feedline.profiler.taps.patch import Patches

if TYPE_CHECKING:
    from feedline.profiler.taps.iterators import LibraryTap


class Hooks:
    """Attaches taps now or when their library is imported, and detaches all of them again.

    Args:
        report: called for each tap after the attempt to attach it.
        notify_done: called after all taps of one library.

    Attributes:
        arriving: whether more calls of ``report`` follow.
    """

    def __init__(self, report: ReportHook, notify_done: Callable[[], None]) -> None:
        self.report, self._notify_done = report, notify_done
        self.arriving = False
        self._undo: list[Callable[[], None]] = []
        self._active = True

    def when_imported(self, library: str, attach: Callable[[], None]) -> None:
        """Call ``attach`` when the library is imported; at once if it already is.

        Its errors are reported, not raised.
        """

        def arrived(_: object) -> None:
            if self._active:
                before, self.arriving = self.arriving, True
                try:
                    with _no_collection():
                        attach()
                except Exception as error:
                    reraise_of_handler()
                    self.report(library, False, masks.error(error))
                finally:
                    self.arriving = before
                    self._notify_done()

        self.add_undo(arrivals.when_imported(library, arrived))

    def attach(
        self, name: str, gives: str, attach: Callable[[Patches], Callable[[], None] | None]
    ) -> None:
        """Attach one tap; if it fails, its patches are undone.

        Args:
            name: of its hook.
            gives: what it shows.
            attach: may return what ends the tap, after its patches have been undone.
        """
        patches = Patches()
        try:
            undo = attach(patches)
        except Exception as error:
            reraise_of_handler()
            patches.undo()
            self.report(name, False, masks.error(error))
            return
        if undo is not None:
            self.add_undo(undo)
        self.add_undo(patches.undo)
        self.report(name, True, gives)

    def add_undo(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def detach(self) -> None:
        """Restore all originals. Libraries imported later are not patched."""
        self._active = False
        while self._undo:
            self._undo.pop()()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Avoid garbage collections caused by feedline's own objects.

    One that goes through all of torch's takes 0.1 s.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_NewLoader = Callable[[str, dict[str, object]], int]  # kind, settings -> the loader's number
# the loader's number, settings that have become known
_MoreOfLoader = Callable[[int, dict[str, object]], None]
_NewSetup = Callable[[dict[str, object]], None]  # Manifest.training


def attach_in_main(
    hooks: Hooks,
    folder: Path,
    register_loader: _NewLoader,
    add_to_loader: _MoreOfLoader,
    report_setup: _NewSetup,
    window: ProfilerWindow | None,
) -> None:
    """Register all taps of the training process.

    Imports no library: a training that never imports torch pays nothing.
    """
    hooks.when_imported(
        "torch", lambda: _torch(hooks, folder, register_loader, add_to_loader, report_setup)
    )
    hooks.when_imported("torch", lambda: _gpu(hooks, folder, window))
    hooks.when_imported("torch._dynamo", lambda: _dynamo(hooks))
    hooks.add_undo(operations.attach(hooks.report))


def _torch(
    hooks: Hooks,
    folder: Path,
    register_loader: _NewLoader,
    add_to_loader: _MoreOfLoader,
    report_setup: _NewSetup,
) -> None:
    from feedline.profiler.session.torch_taps import torch_taps
    from feedline.profiler.taps import recording_schedule
    from feedline.profiler.taps.collectives import groups
    from feedline.profiler.taps.iterators import LIBRARY_TAPS
    from feedline.profiler.taps.loader import TORCHDATA, LoaderTaps

    loaders = LoaderTaps(folder, register_loader, add_to_loader)
    for torch_tap in torch_taps(loaders, hooks.report, report_setup, hooks.when_imported):
        hooks.attach(torch_tap.name, torch_tap.gives, torch_tap.attach)
    hooks.add_undo(recording_schedule.schedule.stop)  # the first one to be undone
    groups.name_when_imported(hooks.when_imported, hooks.report)
    hooks.when_imported(
        TORCHDATA.module,
        lambda: hooks.attach(
            "StatefulDataLoader",
            "the same for torchdata's loader",
            partial(loaders.attach, TORCHDATA),
        ),
    )
    for tap in LIBRARY_TAPS:
        hooks.when_imported(tap.module, partial(_library_loaders, hooks, tap, register_loader))


def _gpu(hooks: Hooks, folder: Path, window: ProfilerWindow | None) -> None:
    from feedline.profiler.taps import gpu_timer
    from feedline.profiler.taps.kineto_window import PROFILER_HOOK, KinetoWindow

    hooks.add_undo(gpu_timer.attach(hooks.report))
    if window is not None and not window.active:
        hooks.report(
            PROFILER_HOOK,
            False,
            Message("turned off with --torch-profiler off", message.TURNED_OFF),
        )
        return
    kineto = KinetoWindow(folder, window, hooks.report)
    hooks.attach(PROFILER_HOOK, "kernels, copies and operators of a few steps", kineto.attach)
    hooks.add_undo(kineto.stop)


def _dynamo(hooks: Hooks) -> None:
    from feedline.profiler.taps.compile import CompileTap

    tap = CompileTap()
    hooks.attach("torch.compile", "compilations", tap.attach)
    hooks.add_undo(tap.undo)


def _library_loaders(hooks: Hooks, tap: "LibraryTap", register_loader: _NewLoader) -> None:
    hooks.attach(
        tap.library,
        f"the loaders of {tap.library}: waits and batches",
        lambda patches: tap.attach(patches, register_loader),
    )
