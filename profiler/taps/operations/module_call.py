"""Spans around transforms that are nn.Modules.

``__call__`` is shadowed and ``forward`` left alone: subclasses override ``forward``, and torch.jit.script compiles it.
"""

from collections.abc import Callable
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail, looking
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.span import stopwatch


def spanned_call(cls: Any) -> Callable[..., Any]:
    """A ``__call__`` for a class of transforms; spans carry the name of the instance's class. ``cls``: a subclass of nn.Module."""
    from torch.compiler import is_compiling
    from torch.nn import Module

    timed = stopwatch(Stage.AUGMENT, sizes.augmented)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not looking or is_compiling():
            return super(cls, self).__call__(*args, **kwargs)
        write = detail.write
        if write is None:
            return super(cls, self).__call__(*args, **kwargs)
        return timed(write, type(self).__name__, super(cls, self).__call__, args, kwargs)

    __call__._torchdynamo_inline = Module._wrapped_call_impl  # type: ignore[attr-defined]  # torch.compile traces what was there before
    return __call__
