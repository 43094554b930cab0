"""Describes a batch: bytes, samples, kind of memory."""

from collections import UserDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch

from feedline.profiler.events import Flag
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.torch_internals import below_function_modes

# a batch of more parts is described by its first ones: this runs once a batch in the training's
# main thread
_MAX_LEAVES = 64
_COUNTED_PARTS = 8  # of a long list: the others are taken to hold as many tensors
_COUNTED_DEPTH = 4
_COUNTED = 256  # parts, of all of them
_PARTS = range(1024)  # other than tensors, those within others as well: about 1 ms
_WIDE_FLOATS = torch.float32, torch.float64
_OBJECT_BYTES = 65536  # arrays below it cost less to pickle than to share


class BatchContents(NamedTuple):
    nbytes: int  # in tensors and arrays
    # length of the first dimension of the first tensor; of the list when there is none; 0: unknown
    samples: int
    flags: int  # Flag.FLOAT32, SHARED, OBJECTS
    # each goes through a worker's queue by a descriptor of its own; estimated where there are many
    tensors: int = 0


@below_function_modes
def describe(batch: Any) -> BatchContents:
    """Walk the dicts, lists and tuples of a batch.

    Reads no values. A batch whose parts raise is unknown.
    """
    try:
        return _describe(batch)
    except Exception:
        reraise_of_handler()
        return BatchContents(0, 0, 0)


def rows(batch: Any) -> int:
    """Return ``describe(batch).samples``, with a shortcut for common batches."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(first) is torch.Tensor and first.layout is torch.strided and (shape := first.shape):
        return int(shape[0])
    return describe(batch).samples


@below_function_modes
def may_hold_more(batch: Any) -> bool:
    """Return whether one item of a dataset may be a whole batch.

    Its first and its last tensor then have the same first dimension, above 1.
    """
    if type(batch) not in (list, tuple) or len(batch) < 2:
        return False
    first, last = batch[0], batch[-1]
    if not (
        isinstance(first, torch.Tensor)
        and isinstance(last, torch.Tensor)
        and first.ndim
        and last.ndim
    ):
        return False
    return bool(first.shape[0] == last.shape[0] > 1)


def _describe(batch: Any) -> BatchContents:
    largest = None
    largest_bytes = -1
    total = 0
    floats = 0
    array_bytes = 0
    samples = 0
    of_arrays = 0
    tensors = 0
    objects = []
    room = iter(_PARTS)
    found = leaves(batch, [], room)
    for leaf in found:
        if isinstance(leaf, torch.Tensor):
            tensors += 1
            if leaf.layout is not torch.strided:
                continue
            nbytes = leaf.nbytes
            total += nbytes
            if leaf.dtype in _WIDE_FLOATS:
                floats += nbytes
            if nbytes > largest_bytes:
                largest, largest_bytes = leaf, nbytes
            if not samples and (shape := leaf.shape):
                samples = shape[0]
        elif hasattr(leaf, "nbytes") and hasattr(leaf, "ndim"):
            array_bytes += leaf.nbytes
            if not of_arrays and leaf.ndim:
                of_arrays = leaf.shape[0]
        elif hasattr(leaf, "__dict__"):  # numbers and texts have none
            objects.append(leaf)
    if objects:
        tensors += _held_by(objects, room)
    if len(found) >= _MAX_LEAVES:
        tensors = max(tensors, round(_about_tensors(batch, _COUNTED_DEPTH, _COUNTED)))
    flags = 0
    if floats * 2 > total:
        flags |= Flag.FLOAT32
    # Tensor.is_shared takes 1.5 us
    if largest is not None and largest.is_cpu and largest.untyped_storage().is_shared():
        flags |= Flag.SHARED
    if array_bytes > _OBJECT_BYTES:
        flags |= Flag.OBJECTS
    samples = samples or of_arrays
    if not samples and isinstance(batch, (list, tuple)):
        samples = len(batch)
    return BatchContents(total + array_bytes, samples, flags, tensors)


def leaves(value: Any, found: list[Any], room: Iterator[int] | None = None) -> list[Any]:
    """Return ``found`` with what is in dicts, lists and tuples, about _MAX_LEAVES of it.

    ``room`` has one item for each part that may be looked into: empty lists give no leaf, but take time.
    """
    if room is None:
        room = iter(_PARTS)
    if isinstance(value, (list, tuple)):
        parts: Iterable[Any] = value[:_MAX_LEAVES]
    elif isinstance(value, dict):
        parts = islice(value.values(), _MAX_LEAVES)
    elif isinstance(value, UserDict) and isinstance(data := _data_of(value), dict):
        return leaves(data, found, room)  # transformers.BatchEncoding
    elif type(value).__name__ == "TensorDict" and hasattr(value, "items"):
        return leaves(dict(value.items()), found, room)
    else:
        found.append(value)
        return found
    for part in parts:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif len(found) < _MAX_LEAVES and next(room, None) is not None:
            leaves(part, found, room)
    return found


def _data_of(value: UserDict[Any, Any]) -> Any:
    """Return what it holds, without running code of the program: ``data`` may be a property."""
    return object.__getattribute__(value, "__dict__").get("data")


def _about_tensors(value: Any, depth: int, most: int) -> float:
    """Return about how many tensors are in dicts, lists and tuples, from the first parts of each.

    ``most`` parts are counted, which those of a container share among them.
    """
    if isinstance(value, torch.Tensor):
        return 1.0
    if not depth or not isinstance(value, (list, tuple, dict)):
        return 0.0
    if isinstance(value, dict):
        counted = list(islice(value.values(), max(1, min(_MAX_LEAVES, most))))
    else:
        counted = list(value[: max(1, min(_COUNTED_PARTS, most))])
    if not counted:
        return 0.0
    each = most // len(counted)
    tensors = sum(_about_tensors(part, depth - 1, each) for part in counted)
    return tensors * len(value) / len(counted)


def _held_by(things: list[Any], room: Iterator[int]) -> int:
    """Return the tensors in the attributes of objects and of the objects in them.

    Such is a batch of torch_geometric. Each object is looked at once, while ``room`` lasts. Those
    within others come last: they are appended to ``things``.
    """
    tensors, met = 0, set[int]()
    for thing in things:
        inside = getattr(thing, "__dict__", None)
        if not isinstance(inside, dict) or isinstance(thing, type) or id(thing) in met:
            continue
        met.add(id(thing))
        for part in leaves(inside, [], room):
            if isinstance(part, torch.Tensor):
                tensors += 1
            else:
                things.append(part)
    return tensors
