"""Iterators of other libraries (DALI, torchdata.nodes, torchrl, Ray Data, Grain) as loaders.

The waits of the training are recorded, and its batches.

What a library does before it hands a batch over is not visible.
"""

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from feedline.profiler.events import Flag, Stage
from feedline.profiler.fail_open import fail_open
from feedline.profiler.record.recorder import Span, inside, recorder
from feedline.profiler.store.segment import window_of
from feedline.profiler.taps.loader import IteratorState, watched_next
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.source_names import call_site

_NewLoader = Callable[[str, dict[str, object]], int]  # kind, settings -> number of the loader
_About = tuple[str, dict[str, object]]
_DALI, _NODES, _TORCHRL, _RAY, _GRAIN = "DALI", "torchdata.nodes", "torchrl", "Ray Data", "Grain"
_GRAIN_DATA_LOADER = "_DataLoaderPipelineMarkerIterDataset"
_AT_ITS_END = "_feedline_reset"  # attribute of an iterator of DALI that has reset itself


@dataclass
class _KnownLoader:
    """A loader that was iterated."""

    owner: Callable[[], Any]  # a weak reference
    about: _About
    began: dict[str, object]  # the line at which its first pass did
    number: int
    epoch: int = -1


class _LibraryLoaders:
    """Loaders of one library, and their passes.

    Args:
        library: its name.
        register: called once for each loader that is iterated.
        one_thread: the library makes iterators in threads of its own, too: only those count that
            the thread of the first one makes.
    """

    def __init__(self, library: str, register: _NewLoader, one_thread: bool = False) -> None:
        self._library = library
        self._one_thread = one_thread
        self._register = register
        self._known: list[_KnownLoader] = []
        self._thread = 0  # of the first pass

    def begin(self, owner: Any, kind: str, start: Callable[[], Any]) -> Any:
        """Return the iterator that ``start`` makes for a pass over ``owner``.

        Its batches are recorded from now on, by ``_watched``. An iterator that is made inside the
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
            with fail_open:  # it cannot be watched: its batches are not recorded
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
        """Return what is known of a loader.

        One that replaces another alike, of which a pass began at the same line, is taken for that.
        """
        for known in self._known:
            if known.owner() is owner:
                return known
        about = kind, {"library": self._library, **_batch_size(owner)}
        began = call_site(sys._getframe(1))
        for known in self._known:
            if known.owner() is None and (known.about, known.began) == (about, began):
                known.owner = weakref.ref(owner)
                return known
        made = _KnownLoader(weakref.ref(owner), about, began, self._register(*about))
        self._known.append(made)
        return made


def _batch_size(owner: Any) -> dict[str, object]:
    size = getattr(owner, "batch_size", None)
    return {"batch_size": size} if isinstance(size, int) else {}


def _watched(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
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


def _attach_dali(patches: Patches, register: _NewLoader) -> None:
    """Patch ``__init__``, ``__next__`` and ``reset`` of the PyTorch plugin's iterators.

    Raises:
        AttributeError, ImportError: this DALI is built differently.
    """
    from nvidia.dali.plugin import pytorch

    base = pytorch.DALIGenericIterator  # DALIClassificationIterator and users' own derive from it
    loaders = _LibraryLoaders(_DALI, register)
    original_init, original_reset = base.__init__, base.reset
    watched = _watched(base.__next__)

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        def start() -> Any:  # it prepares the first batches
            original_init(self, *args, **kwargs)
            return self

        loaders.begin(self, type(self).__name__, start)

    @functools.wraps(base.__next__)
    def __next__(self: Any) -> Any:
        if not inside.depth and vars(self).pop(_AT_ITS_END, False):
            loaders.begin(self, type(self).__name__, lambda: self)
        return watched(self)

    @functools.wraps(original_reset)
    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        # with auto_reset, inside of __next__: the pass begins when it is asked again
        vars(self)[_AT_ITS_END] = inside.depth > 0
        returned = []

        def start() -> Any:
            returned.append(original_reset(self, *args, **kwargs))
            return self

        loaders.begin(self, type(self).__name__, start)
        return returned[0]

    patches.set(base, "__init__", __init__)
    patches.set(base, "__next__", __next__)
    patches.set(base, "reset", reset)


def _attach_nodes(patches: Patches, register: _NewLoader) -> None:
    """Patch ``Loader.__iter__``, and ``__next__`` of what it returns.

    Raises:
        AttributeError, ImportError: this torchdata is built differently.
    """
    from torchdata.nodes.loader import Loader, LoaderIterator

    loaders = _LibraryLoaders(_NODES, register)
    original = Loader.__iter__

    @functools.wraps(original)
    def __iter__(loader: Any) -> Any:
        return loaders.begin(loader, type(loader).__name__, lambda: original(loader))

    patches.set(Loader, "__iter__", __iter__)
    patches.set(LoaderIterator, "__next__", _watched(LoaderIterator.__next__))


class _Buffer:
    """What is known of a buffer, which may itself be pickled."""


def _attach_torchrl(patches: Patches, register: _NewLoader) -> None:
    """Patch ``sample`` of replay buffers.

    Raises:
        AttributeError, ImportError: this torchrl is built differently.
    """
    from torchrl.data.replay_buffers import replay_buffers

    loaders = _LibraryLoaders(_TORCHRL, register)
    known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    for kind in (replay_buffers.ReplayBuffer, replay_buffers.TensorDictReplayBuffer):
        patches.set(kind, "sample", _watched_sample(kind.sample, loaders, known))


def _watched_sample(
    original: Callable[..., Any],
    loaders: _LibraryLoaders,
    known: "weakref.WeakKeyDictionary[Any, Any]",
) -> Callable[..., Any]:
    @functools.wraps(original)
    def sample(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            of = known.setdefault(buffer, _Buffer())
        except TypeError:  # a subclass that cannot be hashed
            return original(buffer, *args, **kwargs)
        if not hasattr(of, "_feedline"):
            loaders.begin(buffer, type(buffer).__name__, lambda: of)
        return _watched(lambda _: original(buffer, *args, **kwargs))(of)

    return sample


def _attach_ray(patches: Patches, register: _NewLoader) -> None:
    """Patch ``iter_torch_batches`` and ``iter_batches`` of data sets.

    Raises:
        AttributeError, ImportError: this Ray is built differently.
    """
    from ray.data.iterator import DataIterator

    loaders = _LibraryLoaders(_RAY, register)
    for name in ("iter_torch_batches", "iter_batches"):
        patches.set(DataIterator, name, _watched_call(getattr(DataIterator, name), name, loaders))


def _watched_call(original: Callable[..., Any], name: str, loaders: _LibraryLoaders) -> Any:
    @functools.wraps(original)
    def iter_batches(data: Any, *args: Any, **kwargs: Any) -> Any:
        batches = original(data, *args, **kwargs)
        with suppress(AttributeError):  # it is built differently: its batches are not recorded
            make, owner = batches.iterator_gen, getattr(data, "_base_dataset", data)

            def passes() -> Iterator[Any]:
                yield from loaders.begin(owner, name, lambda: _RayBatches(make()))

            batches.iterator_gen = passes
        return batches

    return iter_batches


class _RayBatches:
    """An iterator with room for what is known of it."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    @_watched
    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """End a pass early, as a generator's ``close`` does."""
        self._batches.close()  # type: ignore[attr-defined]


def _attach_grain(patches: Patches, register: _NewLoader) -> None:
    """Patch ``__iter__`` of what Grain puts at the end of each pipeline.

    The class of the iterator that it returns gets another ``__next__``, and that of the data set
    another ``__iter__``.

    Raises:
        AttributeError, ImportError: this Grain is built differently.
    """
    from grain._src.python.dataset.dataset import _OutputIterDataset

    loaders = _LibraryLoaders(_GRAIN, register, one_thread=True)
    original = _OutputIterDataset.__iter__
    done: set[type] = set()

    def begin(data: Any, start: Callable[[], Any]) -> Any:
        of_loader = type(data).__name__ == _GRAIN_DATA_LOADER
        iterator = loaders.begin(data, "DataLoader" if of_loader else "IterDataset", start)
        if type(iterator) not in done and hasattr(iterator, "_feedline"):
            done.add(type(iterator))
            patches.set(type(iterator), "__next__", _watched(type(iterator).__next__))
        if type(data) not in done and loaders.knows(data):
            done.add(type(data))
            patches.set(type(data), "__iter__", again(type(data).__iter__))
        return iterator

    def again(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Later passes over a data set do without what ends its pipeline."""

        @functools.wraps(original)
        def __iter__(data: Any) -> Any:
            return begin(data, lambda: original(data)) if loaders.knows(data) else original(data)

        return __iter__

    @functools.wraps(original)
    def __iter__(output: Any) -> Any:
        return begin(output._parent, lambda: original(output))

    patches.set(_OutputIterDataset, "__iter__", __iter__)


class LibraryTap(NamedTuple):
    """The tap of a library with loaders of its own.

    Attributes:
        module: of the library; the tap is attached when it is imported.
        library: its name.
        attach: patches it; called with what registers a loader.
    """

    module: str
    library: str
    attach: Callable[[Patches, _NewLoader], None]


LIBRARY_TAPS = (
    LibraryTap("nvidia.dali.plugin.pytorch", _DALI, _attach_dali),
    LibraryTap("torchdata.nodes.loader", _NODES, _attach_nodes),
    LibraryTap("torchrl.data.replay_buffers.replay_buffers", _TORCHRL, _attach_torchrl),
    LibraryTap("ray.data.iterator", _RAY, _attach_ray),
    LibraryTap("grain._src.python.dataset.dataset", _GRAIN, _attach_grain),
)
