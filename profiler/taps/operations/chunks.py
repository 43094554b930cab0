"""The chunks of a stored array that a selection touches: all of each is read and unpacked."""

import math
import operator
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.detail import detail
from feedline.profiler.taps.operations.span import read_size, stopwatch, transparent

_MOST = 1000  # numbers of a list, which are looked at one by one


def spanned_chunks(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap ``__getitem__`` of arrays in chunks as a read, with the bytes of the chunks it touches."""

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = detail.write
        if write is None:
            return original(*args, **kwargs)

        def size(result: Any) -> tuple[int, int]:
            nbytes, _ = read_size(result)
            return nbytes, _bytes_touched(args[0], args[1])

        return stopwatch(Stage.READ, size)(write, name, original, args, kwargs)

    return transparent(original, look)


def _bytes_touched(array: Any, selection: Any) -> int:
    """Return the bytes, unpacked, of the chunks that a selection touches; 0: not known."""
    try:
        chunks, shape = array.chunks, array.shape
        if not chunks or len(chunks) != len(shape):
            return 0
        touched = map(_touched, _by_dimension(selection, len(shape)), chunks, shape)
        return math.prod(touched) * math.prod(chunks) * int(array.dtype.itemsize)
    except Exception:  # a selection of another kind: the read is recorded without
        reraise_of_handler()
        return 0


def _by_dimension(selection: Any, dimensions: int) -> Sequence[Any]:
    """Return what is selected of each dimension.

    Raises:
        ValueError: a name or a mask selects.
    """
    parts = list(selection) if isinstance(selection, tuple) else [selection]
    if any(isinstance(part, str) or getattr(part, "ndim", 1) > 1 for part in parts):
        raise ValueError("names and masks select in another way")
    cut = [at for at, part in enumerate(parts) if isinstance(part, EllipsisType)]
    missing = [slice(None)] * (dimensions - len(parts) + len(cut))
    return [*parts[: cut[0]], *missing, *parts[cut[0] + 1 :]] if cut else [*parts, *missing]


def _touched(part: Any, chunk: int, length: int) -> int:
    """Return how many chunks of a dimension are touched.

    Raises:
        TypeError: it is no selection of numbers.
    """
    if isinstance(part, slice):
        picked: Any = range(length)[part]
        if not picked:
            return 0
        return min(len(picked), abs(picked[-1] // chunk - picked[0] // chunk) + 1)
    if hasattr(part, "nonzero") and hasattr(part, "ndim") and part.ndim:
        chosen = part.nonzero()[0] if part.dtype == bool else part
        return len(set((chosen % length // chunk).tolist()))
    if isinstance(part, list):
        if len(part) > _MOST or any(isinstance(at, bool) for at in part):
            raise TypeError("masks, and lists of many numbers")
        return len({at % length // chunk for at in part})
    operator.index(part)
    return 1
