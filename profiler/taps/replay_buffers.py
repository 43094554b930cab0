"""Replay buffers of torchrl, which hand over batches without passes."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

from feedline.profiler.taps.iterators import LibraryLoaders, NewLoader, watched
from feedline.profiler.taps.patch import Patches

NAME = "torchrl"


class _Buffer:
    """What is known of a buffer, which may itself be pickled."""


def attach(patches: Patches, register: NewLoader) -> None:
    """Patch ``sample`` of replay buffers.

    Raises:
        AttributeError, ImportError: this torchrl is built differently.
    """
    from torchrl.data.replay_buffers import replay_buffers

    loaders = LibraryLoaders(NAME, register)
    known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    for kind in (replay_buffers.ReplayBuffer, replay_buffers.TensorDictReplayBuffer):
        patches.set(kind, "sample", _watched_sample(kind.sample, loaders, known))


def _watched_sample(
    original: Callable[..., Any],
    loaders: LibraryLoaders,
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
        return watched(lambda _: original(buffer, *args, **kwargs))(of)

    return sample
