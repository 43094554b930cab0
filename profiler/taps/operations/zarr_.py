"""zarr: reading from an array, decompression included."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing, read_size


def _install(tap: Tap, zarr: ModuleType) -> None:
    tap.method(zarr.Array, "__getitem__", Stage.READ, read_size, "zarr.Array")


def _selftest() -> str | None:
    import zarr

    array = zarr.array([1, 2, 3])
    return missing(collect(lambda: array[:2]), (Stage.READ, "zarr.Array"))


LIBRARY = Library(
    "zarr",
    "zarr",
    "Array[...]; codecs decompress in the same call: counted as read",
    _install,
    _selftest,
)
