"""DALI's iterators as loaders: the waits of the training, and its batches.

DALI's inside is not visible.
"""

import functools
from collections.abc import Callable
from typing import Any

from feedline.profiler.events import Flag, Stage, batch_key
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.store.segment import window_of
from feedline.profiler.taps.batch_contents import describe
from feedline.profiler.taps.patch import Patches


def attach(patches: Patches, register: Callable[[str, dict[str, object]], int]) -> None:
    """Patch ``__init__``, ``__next__`` and ``reset`` of the PyTorch plugin's iterators.

    Raises:
        AttributeError, ImportError: this DALI is built differently.
    """
    from nvidia.dali.plugin import pytorch

    base = pytorch.DALIGenericIterator  # DALIClassificationIterator and users' own derive from it
    original_init, original_next, original_reset = base.__init__, base.__next__, base.reset

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        segment = recorder.resume()
        if segment is None:
            return original_init(self, *args, **kwargs)
        if recorder.optimizers is not None:
            recorder.optimizers.pass_begins(segment)
        recorder.may_pause = False
        with Span(segment, Stage.EPOCH):  # it prepares the first batches
            original_init(self, *args, **kwargs)
        self._feedline = [
            register(
                type(self).__name__,
                {"batch_size": getattr(self, "batch_size", None), "library": "DALI"},
            ),
            0,
            0,
        ]

    @functools.wraps(original_next)
    def __next__(self: Any) -> Any:
        segment, state = recorder.main, getattr(self, "_feedline", None)
        if segment is None or state is None:
            return original_next(self)
        loader, epoch, batch = state
        with Span(segment, Stage.NEXT, loader, batch_key(epoch, batch)) as span:
            try:
                data = original_next(self)
            except StopIteration:
                span.flags = Flag.END
                raise
            state[2] += 1
            about = describe(data)
            span.nbytes, span.extra, span.flags = (
                about.nbytes,
                about.samples,
                about.flags | (Flag.FIRST if batch == 0 else 0),
            )
            if recorder.convergence is not None:
                recorder.convergence.handed_over(about.samples)
            segment.window = window_of(epoch, batch)
        return data

    @functools.wraps(original_reset)
    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        segment, state = recorder.main, getattr(self, "_feedline", None)
        if segment is None or state is None:
            return original_reset(self, *args, **kwargs)
        state[1], state[2] = state[1] + 1, 0
        if recorder.optimizers is not None:
            recorder.optimizers.pass_begins(segment)
        with Span(segment, Stage.EPOCH, state[0], state[1]):
            return original_reset(self, *args, **kwargs)

    patches.set(base, "__init__", __init__)
    patches.set(base, "__next__", __next__)
    patches.set(base, "reset", reset)
