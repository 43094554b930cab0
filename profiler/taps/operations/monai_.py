"""MONAI: every transform by its class name, including the user's.

All of its datasets and Compose call them through one function.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import (
    augmented_size,
    collect,
    missing,
    stopwatch,
    transparent,
)

_LOADS = ("LoadImage", "LoadImaged")  # read a file and decode it


def _install(tap: Tap, transform: ModuleType) -> None:
    for name in tap.free(transform, ["_apply_transform"]):
        tap.function(transform, name, _timed(vars(transform)[name]))


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    loading = stopwatch(Stage.DECODE, lambda _: (0, 0))
    changing = stopwatch(Stage.AUGMENT, augmented_size)

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = detail.write
        if write is None:
            return original(*args, **kwargs)
        name = type(args[0] if args else kwargs.get("transform")).__name__
        timed = loading if name in _LOADS else changing
        return timed(write, name, original, args, kwargs)

    return transparent(original, look)


def _selftest() -> str | None:
    import numpy as np
    from monai.transforms import Compose, Flip

    spans = collect(lambda: Compose([Flip(0)])(np.zeros((1, 8, 8), np.float32)))
    return missing(spans, (Stage.AUGMENT, "Flip"))


LIBRARY = Library(
    "monai",
    "monai.transforms.transform",
    "transforms by class, LoadImage as decoding",
    _install,
    _selftest,
)
