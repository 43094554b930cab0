"""Loaders of torchdata.nodes: a graph of nodes with threads or processes of its own."""

import functools
from typing import Any

from feedline.profiler.taps.iterators import LibraryLoaders, NewLoader, watched
from feedline.profiler.taps.patch import Patches

NAME = "torchdata.nodes"


def attach(patches: Patches, register: NewLoader) -> None:
    """Patch ``Loader.__iter__``, and ``__next__`` of what it returns.

    Raises:
        AttributeError, ImportError: this torchdata is built differently.
    """
    from torchdata.nodes.loader import Loader, LoaderIterator

    loaders = LibraryLoaders(NAME, register)
    original = Loader.__iter__

    @functools.wraps(original)
    def __iter__(loader: Any) -> Any:
        return loaders.begin(loader, type(loader).__name__, lambda: original(loader))

    patches.set(Loader, "__iter__", __iter__)
    patches.set(LoaderIterator, "__next__", watched(LoaderIterator.__next__))
