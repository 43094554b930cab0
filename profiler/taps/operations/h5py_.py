"""h5py: reading from a dataset, decompression included."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.chunks import spanned_chunks
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing


def _install(tap: Tap, h5py: ModuleType) -> None:
    reads = spanned_chunks(vars(h5py.Dataset)["__getitem__"], "h5py.Dataset")
    tap.patches.set(h5py.Dataset, "__getitem__", reads)


def _selftest() -> str | None:
    import h5py

    with h5py.File("feedline-selftest", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=[1, 2, 3])
        return missing(collect(lambda: dataset[:2]), (Stage.READ, "h5py.Dataset"))


LIBRARY = Library(
    "h5py",
    "h5py",
    "Dataset[...], and the chunks that it touches; filters decompress in the same call: counted as "
    "read",
    _install,
    _selftest,
)
