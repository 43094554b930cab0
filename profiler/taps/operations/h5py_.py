"""h5py: reading from a dataset, decompression included."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing, read_size


def _install(tap: Tap, h5py: ModuleType) -> None:
    tap.method(h5py.Dataset, "__getitem__", Stage.READ, read_size, "h5py.Dataset")


def _selftest() -> str | None:
    import h5py

    with h5py.File("feedline-selftest", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=[1, 2, 3])
        return missing(collect(lambda: dataset[:2]), (Stage.READ, "h5py.Dataset"))


LIBRARY = Library(
    "h5py",
    "h5py",
    "Dataset[...]; filters decompress in the same call: counted as read",
    _install,
    _selftest,
)
