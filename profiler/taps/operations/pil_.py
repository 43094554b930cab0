"""PIL: opening images, loading them, and operations on them.

Opening reads the header. Loading alternates reading and decoding: a proxy for the file times the
reads separately. ``load`` is called repeatedly on the same image; only the call that loads counts.
Classes that override it (WebP, AVIF, TIFF, plug-ins) may call the inherited one: the outermost call
counts.
"""

import io
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.nvtx_ranges import NAMES
from feedline.profiler.record.detail import Write, detail
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import (
    augmented_size,
    collect,
    missing,
    spanned,
    stopwatch,
    transparent,
)

_METHODS = ("resize", "reduce", "crop", "transpose", "rotate", "transform", "thumbnail", "filter")


def _install_image(tap: Tap, image: ModuleType) -> None:
    for name in tap.free(image, ["open"]):
        tap.function(image, name, spanned(image.open, Stage.READ, _header, "PIL.open"))
    for name in _METHODS:
        tap.method(image.Image, name, Stage.AUGMENT, augmented_size, f"PIL.{name}")
    tap.patches.set(image.Image, "convert", _spanned_convert(image.Image.convert))


def _header(image: Any) -> tuple[int, int]:
    """Return the bytes of a file that opening it has read.

    None for bytes in memory, which were read earlier.
    """
    return 0 if type(image.fp) is io.BytesIO else image.fp.tell(), 0


def _spanned_convert(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``convert`` part of decoding for an image that is loaded from a file by it.

    It is augmentation for others.
    """
    decode = stopwatch(Stage.DECODE, lambda _: (0, 0))
    augment = stopwatch(Stage.AUGMENT, augmented_size)

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = detail.write
        if write is None:
            return original(*args, **kwargs)
        from_file = hasattr(args[0], "tile")  # only ImageFile has it
        return (decode if from_file else augment)(write, "PIL.convert", original, args, kwargs)

    return transparent(original, look)


def _selftest_image() -> str | None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "PNG")
    spans = collect(lambda: Image.open(file).convert("L").resize((8, 8)))
    return missing(
        spans,
        (Stage.READ, "PIL.open"),
        (Stage.DECODE, "PIL.convert"),
        (Stage.AUGMENT, "PIL.resize"),
    )


IMAGE = Library(
    "PIL.Image",
    "PIL.Image",
    f"opening of images; convert, {', '.join(_METHODS)}",
    _install_image,
    _selftest_image,
)


class _TimedFile:
    """Behaves like the file; ``write_to`` records the sum of its reads.

    Bytes of an ``io.BytesIO`` are not counted: whoever put them there has read them.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._counts = type(file) is not io.BytesIO
        self._start = 0  # of the first read
        self._wall = self._cpu = self._runqueue = self._nbytes = 0

    def __getattr__(self, name: str) -> Any:
        if name == "_file":
            raise AttributeError(name)  # while it is being copied
        return getattr(self._file, name)

    def read(self, *args: Any) -> Any:
        """Read as the file's ``read``."""
        begun = clock.now()
        data = None
        try:
            data = self._file.read(*args)
            return data
        finally:
            wall, cpu, runqueue = clock.since(begun)
            self._wall += wall
            self._cpu += cpu
            self._start = self._start or begun[0]
            self._runqueue = UNMEASURED if runqueue < 0 else self._runqueue + runqueue
            if data and self._counts:
                self._nbytes += len(data)

    def write_to(self, write: Write, name: str) -> None:
        """Write one READ span: it starts at the first read and lasts as long as all reads together."""
        if self._start:
            write(
                Stage.READ,
                name,
                self._start,
                self._wall,
                self._cpu,
                self._runqueue,
                self._nbytes,
                0,
            )


# bytes per pixel of the modes whose bands are wider than a byte
_WIDE_MODES = {"I": 4, "F": 4, "I;16": 2}


class _Loading(threading.local):
    watch: "_Watch | None" = None  # of the outermost load that is going on in this thread


_loading = _Loading()


def _install_loading(tap: Tap, image_file: ModuleType) -> None:
    base = image_file.ImageFile

    def cover(cls: Any) -> None:
        if "load" in vars(cls):
            tap.patches.set(cls, "load", _split_load(vars(cls)["load"], inherited=cls is base))

    def cover_with_subclasses(cls: Any) -> None:
        cover(cls)
        for subclass in cls.__subclasses__():
            cover_with_subclasses(subclass)

    cover_with_subclasses(base)
    before = vars(base).get("__init_subclass__")

    def __init_subclass__(cls: type, **kwargs: Any) -> None:
        following = before.__get__(None, cls) if before else super(base, cls).__init_subclass__
        following(**kwargs)
        cover(cls)

    tap.patches.set(base, "__init_subclass__", classmethod(__init_subclass__))


def _split_load(original: Callable[..., Any], inherited: bool) -> Callable[..., Any]:
    """Wrap ``load`` of one class.

    Args:
        original: the method.
        inherited: it is ImageFile's own, which does nothing when the image has no tiles left.
    """

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write, image = detail.write, args[0]
        if write is None or (inherited and not image.tile):
            return original(*args, **kwargs)
        if _loading.watch is not None:
            _loading.watch.loads = _loading.watch.loads or inherited
            return original(*args, **kwargs)
        try:
            watch = _Watch(image, write)
        except Exception:
            reraise_of_handler()
            return original(*args, **kwargs)
        try:
            pixels = original(*args, **kwargs)
            watch.failed = False
            return pixels
        finally:
            watch.end()

    return transparent(original, look)


class _Watch:
    """One load, from creation to ``end()``."""

    def __init__(self, image: Any, write: Write) -> None:
        self.failed = True  # until it has returned
        # or else it may be one more call for an image that is there already
        self.loads = bool(image.tile)
        self._image, self._write, self._core = image, write, _core_of(image)
        self._file = image.fp
        self._timed = None if image.fp is None else _TimedFile(image.fp)
        _exchange(image, self._file, self._timed)
        _loading.watch = self
        self._ranges = recorder.ranges
        if self._ranges is not None:
            self._ranges.push(NAMES[Stage.DECODE])
        self._begun = clock.now()

    def end(self) -> None:
        """Restore the file, and record the times if the image was loaded. Never raises."""
        wall, cpu, runqueue = clock.since(self._begun)
        _loading.watch = None
        if self._ranges is not None:
            self._ranges.pop()
        try:
            _exchange(self._image, self._timed, self._file)
            if not self.loads and _core_of(self._image) is self._core:
                return
            if self._timed is not None:
                self._timed.write_to(self._write, "PIL.read")
            nbytes, pixels = (0, 0) if self.failed else _size(self._image)
            name = f"PIL.{self._image.format or type(self._image).__name__}"
            self._write(Stage.DECODE, name, self._begun[0], wall, cpu, runqueue, nbytes, pixels)
        except Exception:  # an image of a kind we do not know: its time stays in the sample's
            reraise_of_handler()


def _exchange(image: Any, old: Any, new: Any) -> None:
    """Replace the file ``old`` of an image with ``new`` in every attribute."""
    if old is None:
        return
    for holder in (image, getattr(image, "png", None), getattr(image, "_exif", None)):
        for name in ("fp", "_fp"):
            if getattr(holder, "__dict__", {}).get(name) is old:
                setattr(holder, name, new)


def _core_of(image: Any) -> Any:
    """Return the pixels that an image holds: ``_im``, or ``im`` before Pillow 11."""
    fields = image.__dict__
    return fields.get("_im", fields.get("im"))


def _size(image: Any) -> tuple[int, int]:
    """Return (bytes, pixels) of a loaded image."""
    width, height = image.size
    return width * height * _WIDE_MODES.get(image.mode, len(image.getbands())), width * height


def _selftest_loading() -> str | None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    image = Image.open(file)
    spans = collect(image.load)
    if [span.extra for span in spans if span.stage == Stage.DECODE] != [256]:
        return f"one decode span of 16 x 16 pixels was expected, these came: {spans}"
    return missing(spans, (Stage.READ, "PIL.read"), (Stage.DECODE, "PIL.JPEG"))


IMAGE_LOADING = Library(
    "PIL.ImageFile",
    "PIL.ImageFile",
    "decoding, with its file reads timed separately (compressed TIFF files are read by libtiff: "
    "one span)",
    _install_loading,
    _selftest_loading,
)
