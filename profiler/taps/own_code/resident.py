"""Recognizes input that stays in memory.

Models get the same tensors again, or slices of them, such as a whole graph. Nothing has to be read
or made for such a step. A tensor counts if a model got the same memory before, and nothing has
written to it since: its version counter is the same, and on the CPU the same tensor still has the
same values in ``_SAMPLED_WORDS`` places. Values are read seldom once many calls were known. What a
model returned counts too, until it is written to. Python's own values say nothing: a call with a
text, or with many numbers, never counts.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from feedline.profiler.taps.own_code.producers import DEPTH, StorageRef, shorten

_MISSES = 12  # calls in a row that got something new: from then on, no more are looked at
# steps, in a row or not, in which any call did: the other models of such a step may get the same
# tensors again
_MAX_NEW_STEPS = 32
_SURE = 32  # calls in a row that got what was known: from then on, values are read in a few
_READ_EVERY = 16  # calls: a read took 0.3 ms of a step of 10 ms, which empties the caches
_MAX_VALUES = 16  # values of a call that are looked at
_SAMPLED_WORDS = 256  # of 8 bytes, irregularly spread: rows are often padded at their ends
_NUMBER_TYPES = (type(None), bool, int, float)
_PLACES = np.arange(_SAMPLED_WORDS) * 0.6180339887498949 % 1.0  # multiples of the golden ratio


class ResidentInput:
    """The memory that models have got and returned, held weakly.

    Attributes:
        looks_inside: the last call got no tensor at all: the model takes its data itself, and what
            the modules that it calls get from it decides (``took``, ``settled``).
    """

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[StorageRef, Any]] = {}
        self._returned: dict[int, tuple[StorageRef, int]] = {}
        self._given: set[int] = set()  # storages of the last call's arguments
        self._misses = self._hits = self._steps = 0  # misses and hits: calls in a row
        self._new = False  # whether a call in this step got something new
        self.looks_inside = False
        self._taken: list[bool] = []  # of each tensor: whether it was known
        self._with_grad = True  # the last call

    @property
    def gives_up(self) -> bool:
        """Whether too many calls or steps got something new."""
        return self._misses >= _MISSES or self._steps >= _MAX_NEW_STEPS

    def fed(self, given: Any) -> bool:
        """Return whether all that a model is about to get was there before, unchanged.

        What came from a model counts as well.
        """
        values = list(_values(given))
        tensors = [value for value in values if type(value) is torch.Tensor]
        self._given = {storage._cdata for tensor in tensors for storage in _storages(tensor)}
        plain = all(
            type(value) in _NUMBER_TYPES
            for value in values
            if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter
        )
        known = [self._known(tensor) for tensor in tensors] if len(values) <= _MAX_VALUES else []
        self.looks_inside, self._taken, self._with_grad = (
            plain and not tensors,
            [],
            torch.is_grad_enabled(),
        )
        return not self.looks_inside and self._again(plain and bool(known) and all(known))

    def took(self, given: Any) -> bool:
        """Note what a model that was called without tensors passes to one of its modules.

        Return whether that is anything but numbers. Tensors that are not leaves come from its own
        layers. Without gradients every tensor is a leaf, so only the first module counts.
        """
        values = [
            value
            for value in _values(given)
            if type(value) not in _NUMBER_TYPES and type(value) is not torch.nn.Parameter
        ]
        if len(self._taken) < _MAX_VALUES and (self._with_grad or not self._taken):
            for value in values:
                if type(value) is not torch.Tensor:
                    self._taken.append(False)
                elif value.is_leaf:
                    self._given.update(storage._cdata for storage in _storages(value))
                    self._taken.append(self._known(value))
        return bool(values)

    def settled(self) -> bool:
        """Return whether all that the model took was there before, unchanged.

        It is about to return.
        """
        return self._again(bool(self._taken) and all(self._taken))

    def _again(self, known: bool) -> bool:
        self._misses = 0 if known else self._misses + 1
        self._hits = self._hits + 1 if known else 0
        self._new |= not known
        return known

    def new_elsewhere(self) -> None:
        """Note that a call got something that is not looked at."""
        self._again(False)

    def step_ends(self) -> None:
        """Note that an update was made."""
        self._steps += self._new
        self._new = False

    def gave(self, output: Any) -> None:
        """Note that a model returned this.

        What it was given, and may pass on as it is, is left out.
        """
        for value in _values(output):
            if type(value) is torch.Tensor and value.layout is torch.strided:
                reference = StorageRef(value.untyped_storage())
                if reference.cdata not in self._given:
                    self._returned[reference.cdata] = reference, value._version
        shorten(self._returned)

    def _known(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is torch.sparse_coo:
            return all([self._known(tensor._indices()), self._known(tensor._values())])
        (storage,) = _storages(tensor)
        at, version = storage._cdata, tensor._version
        if at in self._returned:
            return self._returned[at][1] == version
        on_cpu = tensor.device.type == "cpu"
        piece = (at, tensor.data_ptr(), tensor.shape, tensor.stride())
        own = storage.resizable() and not (on_cpu and storage.is_shared())
        if on_cpu and not _has_memory(tensor, storage):
            return False
        before, of_storage = self._seen.get(piece), self._seen.get(at)
        if before is not None and self._hits >= _SURE and self._hits % _READ_EVERY:
            return before[1][1] == version
        content = (version, _words(tensor)) if on_cpu else (version, b"") if own else None
        self._seen[piece] = self._seen[at] = StorageRef(storage), (content, version)
        shorten(self._seen)
        if before is not None:
            return content is not None and before[1][0] == content
        return own and of_storage is not None and of_storage[1][1] == version


def _storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Return the memory of a tensor.

    Raises an exception for layouts other than strided and COO.
    """
    parts = [tensor._indices(), tensor._values()] if tensor.layout is torch.sparse_coo else [tensor]
    return [part.untyped_storage() for part in parts]


def _elements(tensor: torch.Tensor) -> int:
    """Return the elements of a tensor from its first to its last."""
    if not tensor.numel():
        return 0
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _has_memory(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    """Return whether the storage holds the whole tensor.

    It may have been freed or shrunk, and under tracing it has no memory at all.
    """
    needed = (tensor.storage_offset() + _elements(tensor)) * tensor.element_size()
    return not tensor.numel() or (storage.data_ptr() != 0 and storage.nbytes() >= needed)


def _words(tensor: torch.Tensor) -> bytes:
    """Return values spread over its memory."""
    length = _elements(tensor) * tensor.element_size()
    if not length:
        return b""
    memory: npt.NDArray[Any] = np.frombuffer(
        memoryview((ctypes.c_uint8 * length).from_address(tensor.data_ptr())), np.uint8
    )
    if length >= 8 * _SAMPLED_WORDS:
        memory = memory[: length // 8 * 8].view(np.uint64)
    return (
        memory.tobytes()
        if len(memory) <= _SAMPLED_WORDS
        else memory[(_PLACES * len(memory)).astype(np.int64)].tobytes()
    )


def _values(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield what is in plain containers, and everything else as it is."""
    parts = (
        value
        if type(value) in (tuple, list)
        else list(value.values())
        if type(value) is dict
        else None
    )
    if parts is None or depth > DEPTH or len(parts) > _MAX_VALUES:
        yield value
    else:
        for part in parts:
            yield from _values(part, depth + 1)
