"""What a batch is made of: bytes, samples, kind of memory."""

from typing import Any, NamedTuple

import torch

from feedline.profiler.events import Flag

LEAVES = 64  # a batch of more parts is described by its first ones: this runs once a batch in the training's main thread
OBJECT_BYTES = 65536  # arrays below it cost less to pickle than to share


class Batch(NamedTuple):
    nbytes: int  # in tensors and arrays
    samples: int  # length of the first dimension of the first tensor; of the list when there is none; 0: unknown
    flags: int  # Flag.FLOAT32, SHARED, OBJECTS


def describe(batch: Any) -> Batch:
    """Walk a batch's dicts, lists and tuples. Reads no values. Of an exotic batch, whose parts raise, nothing is known."""
    try:
        return _describe(batch)
    except Exception:
        return Batch(0, 0, 0)


def _describe(batch: Any) -> Batch:
    tensors: list[torch.Tensor] = []
    arrays: list[Any] = []
    _collect(batch, tensors, arrays, [LEAVES])
    largest, largest_bytes, total, floats = None, -1, 0, 0
    for tensor in tensors:
        nbytes = tensor.nbytes
        total += nbytes
        if tensor.is_floating_point() and tensor.element_size() >= 4:
            floats += nbytes
        if nbytes > largest_bytes:
            largest, largest_bytes = tensor, nbytes
    array_bytes = sum(array.nbytes for array in arrays)
    flags = 0
    if floats * 2 > total:
        flags |= Flag.FLOAT32
    if largest is not None and largest.is_cpu and largest.untyped_storage().is_shared():  # Tensor.is_shared takes 1.5 us
        flags |= Flag.SHARED
    if array_bytes > OBJECT_BYTES:
        flags |= Flag.OBJECTS
    samples = next((t.shape[0] for t in tensors if t.dim()), 0) or next((a.shape[0] for a in arrays if a.ndim), 0)
    if not samples and isinstance(batch, (list, tuple)):
        samples = len(batch)
    return Batch(total + array_bytes, samples, flags)


def _collect(value: Any, tensors: list[torch.Tensor], arrays: list[Any], room: list[int]) -> None:
    if room[0] <= 0:
        return
    if isinstance(value, torch.Tensor):
        room[0] -= 1
        if value.layout is torch.strided:
            tensors.append(value)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, tensors, arrays, room)
    elif isinstance(value, (list, tuple)):
        for part in value[:LEAVES]:
            _collect(part, tensors, arrays, room)
    elif hasattr(value, "nbytes") and hasattr(value, "ndim"):
        room[0] -= 1
        arrays.append(value)
    elif hasattr(value, "data") and isinstance(value.data, dict):  # transformers.BatchEncoding, a UserDict
        _collect(value.data, tensors, arrays, room)
    else:
        room[0] -= 1
