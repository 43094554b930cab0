"""decord: opening videos, and decoding frames of them."""

import math
from types import ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing

_READER = "decord.VideoReader"
_FRAMES = ("next", "get_batch")
#: Going to a frame decodes those since the last key frame.
_MOVES = ("seek", "seek_accurate", "skip_frames")


def _install(tap: Tap, decord: ModuleType) -> None:
    reader = decord.VideoReader
    tap.method(reader, "__init__", Stage.READ, _nothing, f"{_READER}.open")
    for name in _FRAMES:
        tap.method(reader, name, Stage.DECODE, _frames, f"{_READER}.{name}")
    for name in _MOVES:
        tap.method(reader, name, Stage.DECODE, _nothing, f"{_READER}.{name}")


def _frames(result: Any) -> tuple[int, int]:
    """Return the bytes of frames that are handed over, a byte per value.

    No pixels: most are decoded only to get to a frame, which a smaller picture would not spare.
    """
    return math.prod(result.shape), 0


def _nothing(_: Any) -> tuple[int, int]:
    return 0, 0


def _selftest() -> str | None:
    import decord

    reader = object.__new__(decord.VideoReader)  # of no file: its calls fail, and are spans as well
    reader._handle = None  # what it frees in the end
    spans = collect(lambda: _failing(lambda: decord.VideoReader("")))
    spans += collect(lambda: _failing(lambda: reader.get_batch([0])))
    return missing(spans, (Stage.READ, f"{_READER}.open"), (Stage.DECODE, f"{_READER}.get_batch"))


def _failing(call: Any) -> None:
    try:
        call()
    except Exception:
        reraise_of_handler()
        return


LIBRARY = Library(
    "decord",
    "decord",
    "opening videos, next, get_batch and the ways to a frame of VideoReader",
    _install,
    _selftest,
)
