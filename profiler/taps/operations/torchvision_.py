"""torchvision: transforms of both versions by their class names, and torchvision.io.

Transforms of the user count, and reading and decoding. ``__call__`` of a transform is shadowed and
``forward`` left alone: subclasses override ``forward``, and torch.jit.script compiles it.
"""

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail, looking
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import (
    Size,
    augmented_size,
    collect,
    decoded_size,
    missing,
    read_size,
    spanned,
    stopwatch,
)


def _spanned_call(cls: Any) -> Callable[..., Any]:
    """Make a ``__call__`` for a class of transforms.

    Spans are named after the class of the instance.

    Args:
        cls: a subclass of nn.Module.
    """
    from torch.compiler import is_compiling
    from torch.nn import Module

    timed = stopwatch(Stage.AUGMENT, augmented_size)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not looking or is_compiling():
            return super(cls, self).__call__(*args, **kwargs)
        write = detail.write
        if write is None:
            return super(cls, self).__call__(*args, **kwargs)
        return timed(write, type(self).__name__, super(cls, self).__call__, args, kwargs)

    __call__._torchdynamo_inline = Module._wrapped_call_impl  # type: ignore[attr-defined]  # torch.compile traces what was there before
    return __call__


DECODERS = (
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_webp",
    "decode_gif",
    "decode_avif",
    "decode_heic",
    "read_image",
)


def _install_io(tap: Tap, io: ModuleType) -> None:
    for name in tap.free(io, ("read_file", *DECODERS)):
        stage, size = (
            (Stage.READ, read_size) if name == "read_file" else (Stage.DECODE, decoded_size)
        )
        wrapper = _scriptable(getattr(io, name), stage, size)
        for module in (io.image, io):  # read_image finds read_file and decode_image in io.image
            tap.function(module, name, wrapper)


def _scriptable(original: Any, stage: Stage, size: Size) -> Callable[..., Any]:
    """Return a wrapper that torch.jit.script can compile.

    It reads the original's source, and looks up its names in the wrapper's globals.
    """
    wrapper: Any = spanned(original, stage, size, f"torchvision.{original.__name__}")
    twin = FunctionType(
        wrapper.__code__,
        original.__globals__,
        wrapper.__name__,
        wrapper.__defaults__,
        wrapper.__closure__,
    )
    twin.__dict__.update(wrapper.__dict__)
    twin.__module__, twin.__qualname__, twin.__doc__ = (
        original.__module__,
        original.__qualname__,
        original.__doc__,
    )
    twin.__annotations__ = original.__annotations__
    return twin


def _selftest_io() -> str | None:
    import torch
    from torchvision import io

    if not hasattr(torch.ops.image, "encode_jpeg"):
        return (
            "torchvision's image operators do not load here: nothing that reads or decodes "
            "with them can run"
        )
    jpeg = io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))
    return missing(collect(lambda: io.decode_jpeg(jpeg)), (Stage.DECODE, "torchvision.decode_jpeg"))


IO = Library(
    "torchvision.io",
    "torchvision.io",
    "read_file, decode_jpeg and the other decoders",
    _install_io,
    _selftest_io,
)


_WITHOUT = ("RandomTransforms",)  # an abstract base


def _install_v1(tap: Tap, transforms: ModuleType) -> None:
    from torch.nn import Module

    for module in (transforms.transforms, transforms.autoaugment):
        for cls in [value for value in vars(module).values() if isinstance(value, type)]:
            if cls.__module__ != module.__name__ or cls.__name__ in _WITHOUT:
                continue
            if Module in cls.__bases__:
                tap.patches.set(cls, "__call__", _spanned_call(cls))
            elif "__call__" in vars(cls):
                tap.method(cls, "__call__", Stage.AUGMENT, augmented_size)


def _selftest_v1() -> str | None:
    import numpy as np
    from torchvision import transforms

    chain = transforms.Compose([transforms.ToTensor(), transforms.CenterCrop(4)])
    spans = collect(lambda: chain(np.zeros((8, 8, 3), np.uint8)))
    return missing(spans, (Stage.AUGMENT, "ToTensor"), (Stage.AUGMENT, "CenterCrop"))


TRANSFORMS = Library(
    "torchvision.transforms",
    "torchvision.transforms",
    "transforms by class; callables of your own inside a Compose count as the Compose's own time",
    _install_v1,
    _selftest_v1,
)


def _install_v2(tap: Tap, v2: ModuleType) -> None:
    tap.patches.set(v2.Transform, "__call__", _spanned_call(v2.Transform))


def _selftest_v2() -> str | None:
    import torch
    from torchvision.transforms import v2

    spans = collect(lambda: v2.Compose([v2.CenterCrop(4)])(torch.zeros(3, 8, 8)))
    return missing(spans, (Stage.AUGMENT, "CenterCrop"))


TRANSFORMS_V2 = Library(
    "torchvision.transforms.v2",
    "torchvision.transforms.v2",
    "transforms by class, your own subclasses of Transform too; v2.functional is not seen on "
    "tensors",
    _install_v2,
    _selftest_v2,
)
