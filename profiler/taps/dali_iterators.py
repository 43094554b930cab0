"""DALI's iterators as loaders."""

import functools
from typing import Any

from feedline.profiler.taps.iterators import LibraryLoaders, NewLoader, watched
from feedline.profiler.taps.patch import Patches

NAME = "DALI"


def attach(patches: Patches, register: NewLoader) -> None:
    """Patch ``__init__``, ``__next__`` and ``reset`` of the PyTorch plugin's iterators.

    Raises:
        AttributeError, ImportError: this DALI is built differently.
    """
    from nvidia.dali.plugin import pytorch

    base = pytorch.DALIGenericIterator  # DALIClassificationIterator and users' own derive from it
    loaders = LibraryLoaders(NAME, register)
    original_init, original_reset = base.__init__, base.reset

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        def start() -> Any:  # it prepares the first batches
            original_init(self, *args, **kwargs)
            return self

        loaders.begin(self, type(self).__name__, start)

    @functools.wraps(original_reset)
    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        returned = []

        def start() -> Any:
            returned.append(original_reset(self, *args, **kwargs))
            return self

        loaders.begin(self, type(self).__name__, start)
        return returned[0]

    patches.set(base, "__init__", __init__)
    patches.set(base, "__next__", watched(base.__next__))
    patches.set(base, "reset", reset)
