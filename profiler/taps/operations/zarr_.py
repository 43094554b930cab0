"""zarr: reading from an array, decompression included."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap


def _install(tap: Tap, zarr: ModuleType) -> None:
    tap.method(zarr.Array, "__getitem__", Stage.READ, sizes.read, "zarr.Array")


def _selftest() -> str | None:
    import zarr

    array = zarr.array([1, 2, 3])
    return missing(collect(lambda: array[:2]), (Stage.READ, "zarr.Array"))


LIBRARY = Library("zarr", "zarr", "Array[...]; codecs decompress in the same call: counted as read", _install, _selftest)
