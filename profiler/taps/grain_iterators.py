"""Grain's data sets and its DataLoader, with threads or processes of their own."""

import functools
from collections.abc import Callable
from typing import Any

from feedline.profiler.taps.iterators import LibraryLoaders, NewLoader, watched
from feedline.profiler.taps.patch import Patches

NAME = "Grain"
_OF_DATA_LOADER = "_DataLoaderPipelineMarkerIterDataset"


def attach(patches: Patches, register: NewLoader) -> None:
    """Patch ``__iter__`` of what Grain puts at the end of each pipeline.

    The class of the iterator that it returns gets another ``__next__``, and that of the data set
    another ``__iter__``.

    Raises:
        AttributeError, ImportError: this Grain is built differently.
    """
    from grain._src.python.dataset.dataset import _OutputIterDataset

    loaders = LibraryLoaders(NAME, register, one_thread=True)
    original = _OutputIterDataset.__iter__
    done: set[type] = set()

    def begin(data: Any, start: Callable[[], Any]) -> Any:
        of_loader = type(data).__name__ == _OF_DATA_LOADER
        iterator = loaders.begin(data, "DataLoader" if of_loader else "IterDataset", start)
        if type(iterator) not in done and hasattr(iterator, "_feedline"):
            done.add(type(iterator))
            patches.set(type(iterator), "__next__", watched(type(iterator).__next__))
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
