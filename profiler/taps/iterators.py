"""Iterators of other libraries as loaders: the waits of the training, and its batches.

What a library does before it hands a batch over is not visible.
"""

import functools
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import Span, inside, recorder
from feedline.profiler.store.segment import window_of
from feedline.profiler.taps.loader import IteratorState, watched_next

NewLoader = Callable[[str, dict[str, object]], int]  # kind, settings -> number of the loader
_About = tuple[str, dict[str, object]]


@dataclass
class _KnownLoader:
    """A loader that was iterated."""

    owner: Callable[[], Any]  # a weak reference
    about: _About
    number: int
    epoch: int = -1


class LibraryLoaders:
    """Loaders of one library, and their passes.

    Args:
        library: its name.
        register: called once for each loader that is iterated.
        one_thread: the library makes iterators in threads of its own, too: only those count that
            the thread of the first one makes.
    """

    def __init__(self, library: str, register: NewLoader, one_thread: bool = False) -> None:
        self._library = library
        self._one_thread = one_thread
        self._register = register
        self._known: list[_KnownLoader] = []
        self._thread = 0  # of the first pass

    def begin(self, owner: Any, kind: str, start: Callable[[], Any]) -> Any:
        """Return the iterator that ``start`` makes for a pass over ``owner``.

        Its batches are recorded from now on, by ``watched``. An iterator that is made inside the
        making of another loader's batch is left alone.
        """
        thread = threading.get_ident()
        self._thread = self._thread or thread
        outermost = not inside.depth and (thread == self._thread or not self._one_thread)
        segment = recorder.resume() if outermost else None
        if segment is None:
            return start()
        if recorder.optimizers is not None:
            recorder.optimizers.pass_begins(segment)
        with Span(segment, Stage.EPOCH) as span:
            inside.depth += 1  # it may make its first batch already
            try:
                iterator = start()
            finally:
                inside.depth -= 1
            with suppress(Exception):  # it cannot be watched: its batches are not recorded
                known = self._of(owner, kind)
                known.epoch += 1
                span.source, span.number = known.number, known.epoch
                span.flags = 0 if known.epoch else Flag.FIRST
                segment.window = window_of(known.epoch, 0)
                iterator._feedline = IteratorState(known.number, known.epoch)
        return iterator

    def knows(self, owner: Any) -> bool:
        """Tell whether a pass over ``owner`` has begun before."""
        return any(known.owner() is owner for known in self._known)

    def _of(self, owner: Any, kind: str) -> _KnownLoader:
        """Return what is known of a loader; of a new one that replaces another alike, of that."""
        about = kind, {"library": self._library, **_batch_size(owner)}
        for known in self._known:
            other = known.owner()
            if other is owner or other is None and known.about == about:
                known.owner = weakref.ref(owner)
                return known
        self._known.append(_KnownLoader(weakref.ref(owner), about, self._register(*about)))
        return self._known[-1]


def _batch_size(owner: Any) -> dict[str, object]:
    size = getattr(owner, "batch_size", None)
    return {"batch_size": size} if isinstance(size, int) else {}


def watched(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what takes the place of an iterator's ``__next__``."""

    @functools.wraps(original)
    def make(iterator: Any) -> Any:
        inside.depth += 1  # transforms that are nn.Modules are not forward passes
        try:
            return original(iterator)
        finally:
            inside.depth -= 1

    recorded = watched_next(make)

    @functools.wraps(original)
    def __next__(iterator: Any) -> Any:
        return original(iterator) if inside.depth else recorded(iterator)

    return __next__
