"""The taps attached in this process. A tap that cannot attach is reported with the reason, and the training continues."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from feedline.profiler import masks
from feedline.profiler.arrivals import arrivals
from feedline.profiler.taps.patch import Patches

Tell = Callable[[str, bool, str], None]  # hook, attached?, what it gives or why not


class Hooks:
    """Attaches taps now or when their library is imported, and detaches all of them again.

    Args:
        tell: called for each tap after the attempt to attach it.
        told: called after all taps of one library.

    Attributes:
        arriving: whether more calls of ``tell`` follow.
    """

    def __init__(self, tell: Tell, told: Callable[[], None]) -> None:
        self.tell, self._told = tell, told
        self.arriving = False
        self._undo: list[Callable[[], None]] = []
        self._active = True

    def when_imported(self, library: str, attach: Callable[[], None]) -> None:
        """Call ``attach`` when the library is imported; at once if it already is. Its errors are reported, not raised."""

        def arrived(_: object) -> None:
            if self._active:
                before, self.arriving = self.arriving, True
                try:
                    with _no_collection():
                        attach()
                except Exception as error:
                    self.tell(library, False, masks.error(error))
                finally:
                    self.arriving = before
                    self._told()

        self.add_undo(arrivals.when_imported(library, arrived))

    def attach(self, name: str, gives: str, attach: Callable[[Patches], None]) -> None:
        """Attach one tap; if it fails, its patches are undone."""
        patches = Patches()
        try:
            attach(patches)
        except Exception as error:
            patches.undo()
            self.tell(name, False, masks.error(error))
            return
        self.add_undo(patches.undo)
        self.tell(name, True, gives)

    def add_undo(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def detach(self) -> None:
        """Restore all originals. Libraries imported later are not patched."""
        self._active = False
        while self._undo:
            self._undo.pop()()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Avoid garbage collections caused by feedline's own objects: one that goes through all of torch's takes 0.1 s."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
