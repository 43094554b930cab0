"""Batches of Ray Data, which its actors make."""

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from feedline.profiler.taps.iterators import LibraryLoaders, NewLoader, watched
from feedline.profiler.taps.patch import Patches

NAME = "Ray Data"


def attach(patches: Patches, register: NewLoader) -> None:
    """Patch ``iter_torch_batches`` and ``iter_batches`` of data sets.

    Raises:
        AttributeError, ImportError: this Ray is built differently.
    """
    from ray.data.iterator import DataIterator

    loaders = LibraryLoaders(NAME, register)
    for name in ("iter_torch_batches", "iter_batches"):
        patches.set(DataIterator, name, _watched_call(getattr(DataIterator, name), name, loaders))


def _watched_call(original: Callable[..., Any], name: str, loaders: LibraryLoaders) -> Any:
    @functools.wraps(original)
    def iter_batches(data: Any, *args: Any, **kwargs: Any) -> Any:
        batches = original(data, *args, **kwargs)
        with suppress(AttributeError):  # it is built differently: its batches are not recorded
            make, owner = batches.iterator_gen, getattr(data, "_base_dataset", data)

            def passes() -> Iterator[Any]:
                yield from loaders.begin(owner, name, lambda: _Batches(make()))

            batches.iterator_gen = passes
        return batches

    return iter_batches


class _Batches:
    """An iterator with room for what is known of it."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    @watched
    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """End a pass early, as a generator's ``close`` does."""
        self._batches.close()  # type: ignore[attr-defined]
