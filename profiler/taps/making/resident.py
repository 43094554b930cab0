"""Recognizes input that stays in memory: steps that get the same tensors again, or views of them, such as a whole graph.

Nothing has to be read or made for such a step. A tensor counts if no operation has written to it since an earlier step got it, which its
version counter tells. Memory that other code can write to (NumPy's, shared memory) has to be the same piece each time, with the same
``WORDS`` values spread over it. What a program writes through ``Tensor.data`` into PyTorch's own memory goes unnoticed.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from feedline.profiler.taps.making.returned import DEPTH, PARTS, shorten

MISSES = 64  # calls in a row that get a tensor that was not there before: from then on, no more are looked at
WORDS = 64  # of 8 bytes
CONSTANTS = (type(None), bool, int, float, str, torch.nn.Parameter)


class Resident:
    """The memory that models have got and returned, held weakly."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[StorageWeakRef, Any]] = {}
        self._outputs: dict[int, StorageWeakRef] = {}
        self._misses = 0

    @property
    def gives_up(self) -> bool:
        """Whether too many calls got new tensors."""
        return self._misses >= MISSES

    def fed(self, given: Any) -> bool:
        """Whether everything that a model is about to get was there before, unchanged, or came from a model."""
        values = list(_values(given))
        known = [self._known(value) if type(value) is torch.Tensor else isinstance(value, CONSTANTS) for value in values]
        again = all(known) and any(type(value) is torch.Tensor for value in values)
        self._misses = 0 if again else self._misses + 1
        return again

    def gave(self, output: Any) -> None:
        """A model returned this."""
        for value in _values(output):
            if type(value) is torch.Tensor and value.layout is torch.strided:
                reference = StorageWeakRef(value.untyped_storage())
                self._outputs[reference.cdata] = reference
        shorten(self._outputs)

    def _known(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is torch.sparse_coo:
            return all([self._known(tensor._indices()), self._known(tensor._values())])
        storage = tensor.untyped_storage()  # other layouts raise: the tap ends
        if storage._cdata in self._outputs:
            return True
        where, content = _mark(tensor, storage)
        before, self._seen[where] = self._seen.get(where), (StorageWeakRef(storage), content)
        shorten(self._seen)
        return content is not None and before is not None and before[1] == content


def _mark(tensor: torch.Tensor, storage: torch.UntypedStorage) -> tuple[Any, Any]:
    """Which memory it is, and what tells that it is unchanged; None: nothing does."""
    on_cpu, version = tensor.device.type == "cpu", tensor._version
    if storage.resizable() and not (on_cpu and storage.is_shared()):
        return storage._cdata, version
    where = storage._cdata, tensor.data_ptr(), tensor.shape, tensor.stride()
    return where, (version, _words(tensor)) if on_cpu else None


def _words(tensor: torch.Tensor) -> list[int]:
    """Values spread over its memory, the first and the last of which it is made among them."""
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    length = elements * tensor.element_size()
    words = (ctypes.c_uint64 * (length // 8)).from_address(tensor.data_ptr())
    last = (ctypes.c_uint8 * min(length, 8)).from_address(tensor.data_ptr() + length - min(length, 8))
    return [*words[:: max(len(words) // WORDS, 1)], *last]


def _values(value: Any, depth: int = 0) -> Iterator[Any]:
    """What is in plain containers, and everything else as it is."""
    parts: Any = None
    if type(value) in (tuple, list) and len(value) <= PARTS:
        parts = value
    elif type(value) is dict and len(value) <= PARTS:
        parts = list(value.values())
    if parts is None or depth > DEPTH:
        yield value
    else:
        for part in parts:
            yield from _values(part, depth + 1)
