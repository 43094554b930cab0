"""Finds the calls that returned the tensors of a model's input. Tensors are held by weak references, so none lives longer."""

import weakref
from collections import UserDict
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from feedline import profiler
from feedline.profiler.taps.patch import PASSED_BY

_PARTS = 64  # of a value are looked at
DEPTH = 2  # of lists in lists
_KEPT = 512  # storages: those that came first are forgotten
_LIBRARIES = (torch.__path__[0], profiler.__path__[0])


class StorageRef(StorageWeakRef):
    """One that a signal's handler may interrupt while it is made: its ``__del__`` then has what it asks for."""

    cdata: Any = None
    _free_weak_ref = staticmethod(lambda _: None)


class _Call(NamedTuple):
    """A call that returned a tensor."""

    number: int  # calls in the order in which they began
    code: CodeType
    tensor: Any  # weakly


class Returned:
    """The results of recent calls.

    The innermost frame that holds a batch when the model gets it does not make it; the outermost call that has ended and returned it does.
    So a call takes the place of those inside it. Of calls one after another all count: one may have made it, the next have moved it.
    """

    def __init__(self) -> None:
        self._open: list[tuple[CodeType, int]] = []
        self._number = 0
        self._calls: dict[int, tuple[StorageWeakRef, list[_Call]]] = {}
        self._outputs: dict[int, StorageWeakRef] = {}
        self._fed: frozenset[int] = frozenset()  # storages of what models got in the last step
        self._feeding: set[int] = set()  # ... in this one

    def entered(self, code: CodeType) -> None:
        self._number += 1
        self._open.append((code, self._number))

    def left(self, code: CodeType, value: Any) -> None:
        if not self._open or self._open[-1][0] is not code:  # it began before calls were seen
            self._open.clear()
            return
        _, number = self._open.pop()
        if value is not None and not _of_a_library(code):
            for tensor in _tensors(value):
                self._note(tensor, _Call(number, code, weakref.ref(tensor)))

    def interrupted(self) -> None:
        """A model or an optimizer is called: calls still open do more than make a batch."""
        self._open.clear()

    def moved(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """A copy of a tensor was made, on another device or of another type."""
        for call in self._of(source):
            self._note(target, call._replace(tensor=weakref.ref(target)))

    def given_back(self, output: Any) -> None:
        """A model returned this. Functions that pass it on, as with recurrent states, make no batch."""
        for tensor in _tensors(output):
            reference = StorageRef(tensor.untyped_storage())
            self._outputs[reference.cdata] = reference
        shorten(self._outputs)

    def makers(self, given: Any, first: bool) -> frozenset[CodeType]:
        """The calls that made the tensors of a model's input.

        Args:
            first: of the step. What a later model gets to compute gradients for, such as a mixture of real and generated pictures, is no
                batch.
        """
        fed = list(_tensors(given))
        self._feeding.update(tensor.untyped_storage()._cdata for tensor in fed)
        return frozenset(call.code for tensor in fed if first or not tensor.requires_grad for call in self._of(tensor))

    def step_ends(self) -> None:
        """An update was made."""
        self._fed, self._feeding = frozenset(self._feeding), set()

    def _of(self, tensor: torch.Tensor) -> list[_Call]:
        storage = tensor.untyped_storage()._cdata
        if storage in self._outputs or storage not in self._calls:
            return []
        calls = self._calls[storage][1]
        if storage in self._fed:  # it was there before: parts of it are chosen by whoever returned this very tensor
            return [call for call in calls if call.tensor() is tensor]
        return calls

    def _note(self, tensor: torch.Tensor, call: _Call) -> None:
        reference = StorageRef(tensor.untyped_storage())
        _, calls = self._calls.pop(reference.cdata, (reference, []))
        outside = [one for one in calls if one.number <= call.number]
        self._calls[reference.cdata] = reference, [*outside, call][-_PARTS:]
        shorten(self._calls)


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Plain tensors in a value and in plain containers; runs no code of the program."""
    if type(value) is torch.Tensor:
        if value.layout is torch.strided:
            yield value
    elif depth <= DEPTH:
        parts: Any = ()
        if isinstance(value, tuple):
            parts = tuple.__getitem__(value, slice(_PARTS))
        elif type(value) is list:
            parts = value[:_PARTS]
        elif type(value) is dict:
            parts = list(value.values())[:_PARTS]
        elif isinstance(value, UserDict):  # transformers.BatchEncoding
            parts = (object.__getattribute__(value, "__dict__").get("data"),)
        for part in parts:
            yield from _tensors(part, depth + 1)


def _of_a_library(code: CodeType) -> bool:
    """Ours, or torch's: called by the program itself, it is a part of what the program does, and says nothing of the rest."""
    return code.co_filename.endswith(PASSED_BY) or code.co_filename.startswith(_LIBRARIES)


def shorten(kept: dict[int, Any]) -> None:
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]
