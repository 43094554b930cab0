"""PIL: opening (reads the header), and operations on images. Loading is in pil_load.py."""

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import detail
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import spanned, stopwatch, transparent

METHODS = ("resize", "reduce", "crop", "transpose", "rotate", "transform", "thumbnail", "filter")


def _install(tap: Tap, image: ModuleType) -> None:
    for name in tap.free(image, ["open"]):
        tap.function(image, name, spanned(image.open, Stage.READ, _header, "PIL.open"))
    for name in METHODS:
        tap.method(image.Image, name, Stage.AUGMENT, sizes.augmented, f"PIL.{name}")
    tap.patches.set(image.Image, "convert", _spanned_convert(image.Image.convert))


def _header(image: Any) -> tuple[int, int]:
    """Bytes of a file that opening it has read. None for bytes in memory, which were read earlier."""
    return 0 if type(image.fp) is io.BytesIO else image.fp.tell(), 0


def _spanned_convert(original: Callable[..., Any]) -> Callable[..., Any]:
    """``convert``: part of decoding for an image that is loaded from a file by it; else augmentation."""
    decode, augment = stopwatch(Stage.DECODE, lambda _: (0, 0)), stopwatch(Stage.AUGMENT, sizes.augmented)

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = detail.write
        if write is None:
            return original(*args, **kwargs)
        from_file = hasattr(args[0], "tile")  # only ImageFile has it
        return (decode if from_file else augment)(write, "PIL.convert", original, args, kwargs)

    return transparent(original, look)


def _selftest() -> str | None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "PNG")
    spans = collect(lambda: Image.open(file).convert("L").resize((8, 8)))
    return missing(spans, (Stage.READ, "PIL.open"), (Stage.DECODE, "PIL.convert"), (Stage.AUGMENT, "PIL.resize"))


LIBRARY = Library("PIL.Image", "PIL.Image", f"opening of images; convert, {', '.join(METHODS)}", _install, _selftest)
