"""torchcodec: opening videos and audio files, and decoding parts of them."""

from types import ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing

_KINDS = ("VideoDecoder", "AudioDecoder")
_PARTS = ("__getitem__", "get_")  # how methods begin that decode


def _install(tap: Tap, decoders: ModuleType) -> None:
    for kind in [name for name in _KINDS if hasattr(decoders, name)]:
        decoder = getattr(decoders, kind)
        tap.method(decoder, "__init__", Stage.READ, _nothing, f"torchcodec.{kind}.open")
        for name in [name for name in vars(decoder) if name.startswith(_PARTS)]:
            span = f"torchcodec.{kind}.{name.strip('_')}"
            tap.method(decoder, name, Stage.DECODE, _decoded, span)


def _decoded(result: Any) -> tuple[int, int]:
    """Return the bytes of what is handed over.

    No pixels: most are decoded only to get to a frame, which a smaller picture would not spare.
    """
    return int(getattr(result, "data", result).nbytes), 0


def _nothing(_: Any) -> tuple[int, int]:
    return 0, 0


def _selftest() -> str | None:
    from torchcodec.decoders import VideoDecoder

    def use() -> None:
        decoder = object.__new__(VideoDecoder)  # of no file: its calls fail, and are spans as well
        for call in (lambda: VideoDecoder(b""), lambda: decoder.get_frame_at(0)):
            try:
                call()
            except Exception:
                continue

    name = "torchcodec.VideoDecoder"
    expected = (Stage.READ, f"{name}.open"), (Stage.DECODE, f"{name}.get_frame_at")
    return missing(collect(use), *expected)


LIBRARY = Library(
    "torchcodec",
    "torchcodec.decoders",
    "opening files, which may read all of them, and what VideoDecoder and AudioDecoder decode",
    _install,
    _selftest,
)
