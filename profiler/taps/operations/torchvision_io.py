"""torchvision.io: reading files and decoding images into tensors."""

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import Size, spanned

DECODERS = ("decode_image", "decode_jpeg", "decode_png", "decode_webp", "decode_gif", "decode_avif", "decode_heic", "read_image")


def _install(tap: Tap, io: ModuleType) -> None:
    for name in tap.free(io, ("read_file", *DECODERS)):
        stage, size = (Stage.READ, sizes.read) if name == "read_file" else (Stage.DECODE, sizes.decoded)
        wrapper = _scriptable(getattr(io, name), stage, size)
        for module in (io.image, io):  # read_image finds read_file and decode_image in io.image
            tap.function(module, name, wrapper)


def _scriptable(original: Any, stage: Stage, size: Size) -> Callable[..., Any]:
    """A wrapper that torch.jit.script can compile: it reads the original's source, and looks up its names in the wrapper's globals."""
    wrapper: Any = spanned(original, stage, size, f"torchvision.{original.__name__}")
    twin = FunctionType(wrapper.__code__, original.__globals__, wrapper.__name__, wrapper.__defaults__, wrapper.__closure__)
    twin.__dict__.update(wrapper.__dict__)
    twin.__module__, twin.__qualname__, twin.__doc__ = original.__module__, original.__qualname__, original.__doc__
    twin.__annotations__ = original.__annotations__
    return twin


def _selftest() -> str | None:
    import torch
    from torchvision import io

    if not hasattr(torch.ops.image, "encode_jpeg"):
        return "torchvision's image operators do not load here: nothing that reads or decodes with them can run"
    jpeg = io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))
    return missing(collect(lambda: io.decode_jpeg(jpeg)), (Stage.DECODE, "torchvision.decode_jpeg"))


LIBRARY = Library("torchvision.io", "torchvision.io", "read_file, decode_jpeg and the other decoders", _install, _selftest)
