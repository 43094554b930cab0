"""zarr: reading from an array, decompression included."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.chunks import spanned_chunks
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing


def _install(tap: Tap, zarr: ModuleType) -> None:
    reads = spanned_chunks(vars(zarr.Array)["__getitem__"], "zarr.Array")
    tap.patches.set(zarr.Array, "__getitem__", reads)


def _selftest() -> str | None:
    import zarr

    array = zarr.array([1, 2, 3])
    return missing(collect(lambda: array[:2]), (Stage.READ, "zarr.Array"))


LIBRARY = Library(
    "zarr",
    "zarr",
    "Array[...], and the chunks that it touches; codecs decompress in the same call: counted as "
    "read",
    _install,
    _selftest,
)
