"""PIL: loading an image, which alternates reading and decoding. A proxy for the file times the reads separately.

``load`` is called repeatedly on the same image; only the call that loads counts. Classes that override it (WebP, AVIF, TIFF,
plug-ins) may call the inherited one: the outermost call counts.
"""

import io
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.nvtx_ranges import NAMES
from feedline.profiler.record.detail import Write, detail
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import transparent
from feedline.profiler.taps.operations.timed_file import TimedFile

_WIDE_MODES = {"I": 4, "F": 4, "I;16": 2}  # bytes per pixel of the modes whose bands are wider than a byte


class _Loading(threading.local):
    watch: "Watch | None" = None  # of the outermost load that is going on in this thread


_loading = _Loading()


def _install(tap: Tap, image_file: ModuleType) -> None:
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
            watch = Watch(image, write)
        except Exception:
            return original(*args, **kwargs)
        try:
            pixels = original(*args, **kwargs)
            watch.failed = False
            return pixels
        finally:
            watch.end()

    return transparent(original, look)


class Watch:
    """One load, from creation to ``end()``."""

    def __init__(self, image: Any, write: Write) -> None:
        self.failed = True  # until it has returned
        self.loads = bool(image.tile)  # or else it may be one more call for an image that is there already
        self._image, self._write, self._core = image, write, _core_of(image)
        self._file = image.fp
        self._timed = None if image.fp is None else TimedFile(image.fp)
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
        except Exception:
            pass  # an image of a kind we do not know: its time stays in the sample's


def _exchange(image: Any, old: Any, new: Any) -> None:
    """Replace the file ``old`` of an image with ``new`` in every attribute."""
    if old is None:
        return
    for holder in (image, getattr(image, "png", None), getattr(image, "_exif", None)):
        for name in ("fp", "_fp"):
            if getattr(holder, "__dict__", {}).get(name) is old:
                setattr(holder, name, new)


def _core_of(image: Any) -> Any:
    """The pixels that an image holds: ``_im``, or ``im`` before Pillow 11."""
    fields = image.__dict__
    return fields.get("_im", fields.get("im"))


def _size(image: Any) -> tuple[int, int]:
    """(bytes, pixels) of a loaded image."""
    width, height = image.size
    return width * height * _WIDE_MODES.get(image.mode, len(image.getbands())), width * height


def _selftest() -> str | None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    image = Image.open(file)
    spans = collect(image.load)
    if [span.extra for span in spans if span.stage == Stage.DECODE] != [256]:
        return f"one decode span of 16 x 16 pixels was expected, these came: {spans}"
    return missing(spans, (Stage.READ, "PIL.read"), (Stage.DECODE, "PIL.JPEG"))


LIBRARY = Library(
    "PIL.ImageFile",
    "PIL.ImageFile",
    "decoding, with its file reads timed separately (compressed TIFF files are read by libtiff: one span)",
    _install,
    _selftest,
)
