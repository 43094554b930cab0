"""numpy: reading arrays from files."""

import io
from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing, read_size, spanned


def _install(tap: Tap, numpy: ModuleType) -> None:
    tap.functions(numpy, tap.free(numpy, ("load", "fromfile")), Stage.READ, read_size)
    tap.method(numpy.lib.npyio.NpzFile, "__getitem__", Stage.READ, read_size, "numpy.NpzFile")
    opened = spanned(numpy.memmap.__new__, Stage.READ, read_size, "numpy.memmap")
    tap.patches.set(numpy.memmap, "__new__", staticmethod(opened))


def _selftest() -> str | None:
    import numpy as np

    file = io.BytesIO()
    np.save(file, np.zeros(4))
    file.seek(0)
    return missing(collect(lambda: np.load(file)), (Stage.READ, "numpy.load"))


LIBRARY = Library(
    "numpy",
    "numpy",
    "load, fromfile, archives, opening a memmap (its pages are read later: the counters see that)",
    _install,
    _selftest,
)
