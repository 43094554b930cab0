"""Finds the calls that returned the tensors of a model's input, and input that stays in memory.

Tensors are held by weak references, so none lives longer.
"""

import ctypes
import random
import sys
import weakref
from collections import UserDict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from feedline import profiler
from feedline.profiler import clock
from feedline.profiler.errors import SKIPPED_FILE_SUFFIX
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.own_code.python_calls import Calls, Stopwatch
from feedline.profiler.taps.source_names import name_of
from feedline.profiler.torch_internals import NoFunctionModes

_MAX_PARTS = 64  # of a value are looked at
_DEPTH = 2  # of lists in lists
_KEPT = 512  # storages: those that came first are forgotten
_LOOKED_AT = 4  # of them, each time that one is added
_LIBRARY_PATHS = (torch.__path__[0], profiler.__path__[0])
_HITS = 3  # steps in turn whose batch comes from a function
_FINDER_MISSES = 4  # steps in turn whose batch comes from none, after which it stays unknown
_MOST_CALLS_SEEN = 60_000  # at 0.25 us each: 15 ms in the whole run
_CLOSELY = 32  # steps that are looked at one after another, to begin with
_EVENT_NS, _LOOK_NS = 300, 60_000  # cost of observing a call, and of observing a step
_LOOK_BUDGET = 0.003  # of the time, for the looks that follow
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


class _StorageRef(StorageWeakRef):
    """A weak reference to a storage, which is freed without a line of Python.

    What a signal's handler raises in a ``__del__`` that is written in Python would be lost, and so
    would Ctrl-C. The value of a slot is called in its place.
    """

    __slots__ = ("__del__",)

    def __init__(self, storage: torch.UntypedStorage) -> None:
        super().__init__(storage)
        self.__del__ = partial(  # type: ignore[method-assign]
            torch.UntypedStorage._free_weak_ref, self.cdata
        )


class _Call(NamedTuple):
    """A call that returned a tensor."""

    number: int  # calls in the order in which they began
    code: CodeType
    tensor: Any  # weakly


class _ReturnedTensors:
    """The results of recent calls.

    The innermost frame that holds a batch when the model gets it does not make it; the outermost
    call that has ended and returned it does. So a call takes the place of those inside it. Of calls
    one after another all count: one may have made it, the next have moved it. One that returns the
    very tensor that another one has made in this step only hands it on.
    """

    def __init__(self) -> None:
        self._open: list[tuple[CodeType, int]] = []
        self._number = self._before = 0  # _before: calls that began before this step
        self._calls: dict[int, tuple[_StorageRef, list[_Call]]] = {}
        self._outputs: dict[int, _StorageRef] = {}
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
        if value is None or _of_a_library(code):
            return
        try:
            with NoFunctionModes():
                for tensor in _tensors(value):
                    self._note(tensor, _Call(number, code, weakref.ref(tensor)))
        except Exception:  # torch.func's tensors have no storage
            reraise_of_handler()

    def interrupted(self) -> None:
        """Note that a model or an optimizer is called: calls still open do more than make a batch."""
        self._open.clear()

    def moved(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Note that a copy of a tensor was made, on another device or of another type."""
        for call in self._of(source):
            self._note(target, call._replace(tensor=weakref.ref(target)))

    def given_back(self, output: Any) -> None:
        """Note that a model returned this.

        Functions that pass it on, as with recurrent states, make no batch.
        """
        for tensor in _tensors(output):
            reference = _StorageRef(tensor.untyped_storage())
            self._outputs[reference.cdata] = reference
        _shorten(self._outputs)

    def makers(self, given: Any, first: bool) -> frozenset[CodeType]:
        """Return the calls that made the tensors of a model's input.

        Args:
            given: the input.
            first: of the step. What a later model gets to compute gradients for, such as a mixture
                of real and generated pictures, is no batch.
        """
        fed = list(_tensors(given))
        self._feeding.update(tensor.untyped_storage()._cdata for tensor in fed)
        return frozenset(
            call.code
            for tensor in fed
            if first or not tensor.requires_grad
            for call in self._of(tensor)
        )

    def step_ends(self) -> None:
        """Note that an update was made."""
        self._fed, self._feeding = frozenset(self._feeding), set()
        self._before = self._number

    def _of(self, tensor: torch.Tensor) -> list[_Call]:
        storage = tensor.untyped_storage()._cdata
        if storage in self._outputs or storage not in self._calls:
            return []
        calls = self._calls[storage][1]
        # it was there before: parts of it are chosen by whoever returned this very tensor
        if storage in self._fed:
            return [call for call in calls if call.tensor() is tensor]
        return calls

    def _note(self, tensor: torch.Tensor, call: _Call) -> None:
        reference = _StorageRef(tensor.untyped_storage())
        _, calls = self._calls.pop(reference.cdata, (reference, []))
        if any(self._hands_on(call, earlier, tensor) for earlier in calls):
            self._calls[reference.cdata] = reference, calls
            return
        outside = [earlier for earlier in calls if earlier.number <= call.number]
        self._calls[reference.cdata] = reference, [*outside, call][-_MAX_PARTS:]
        _shorten(self._calls)

    def _hands_on(self, call: _Call, earlier: _Call, tensor: torch.Tensor) -> bool:
        return self._before < earlier.number < call.number and earlier.tensor() is tensor


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Return the plain tensors in a value and in plain containers; runs no code of the program."""
    if type(value) is torch.Tensor:
        if value.layout is torch.strided:
            yield value
    elif depth <= _DEPTH:
        parts: Any = ()
        if isinstance(value, tuple):
            parts = tuple.__getitem__(value, slice(_MAX_PARTS))
        elif type(value) is list:
            parts = value[:_MAX_PARTS]
        elif type(value) is dict:
            parts = list(value.values())[:_MAX_PARTS]
        elif isinstance(value, UserDict):  # transformers.BatchEncoding
            parts = (object.__getattribute__(value, "__dict__").get("data"),)
        for part in parts:
            yield from _tensors(part, depth + 1)


def _of_a_library(code: CodeType) -> bool:
    """Return whether a function is ours, or torch's.

    Called by the program itself, it is a part of what the program does, and says nothing of the
    rest.
    """
    return code.co_filename.endswith(SKIPPED_FILE_SUFFIX) or code.co_filename.startswith(
        _LIBRARY_PATHS
    )


def _shorten(kept: dict[Any, Any]) -> None:
    """Forget storages that are gone, a few at a time, and the first of too many.

    A reference keeps a few bytes of a storage that is gone. Among large blocks that come and go,
    they keep the allocator from joining what is free, and memory grows by a block per step.

    Args:
        kept: references, or tuples that begin with one.
    """
    for key in list(islice(kept, _LOOKED_AT)):
        value = kept.pop(key)
        if not (value[0] if isinstance(value, tuple) else value).expired():
            kept[key] = value
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]


class ProducerFinder:
    """Observes the calls of the training outside models, backward passes and updates.

    It does so in a few steps.

    Attributes:
        looks: calls are to be seen now.
        found: code of the functions; empty: not known yet.
    """

    def __init__(self) -> None:
        self._returned = _ReturnedTensors()
        self._calls = Calls(self._returned.entered, self._returned.left, _MOST_CALLS_SEEN)
        self.looks = False
        self.found: frozenset[CodeType] = frozenset()
        self._hits: list[frozenset[CodeType]] = []
        self._misses = 0
        self._forwards, self._by_loader = 0, False  # of this step
        self._makers: frozenset[CodeType] = frozenset()  # of what they got

    @property
    def gives_up(self) -> bool:
        """Whether the search is given up."""
        return self._misses >= _FINDER_MISSES or self._calls.events >= _MOST_CALLS_SEEN

    def on(self) -> bool:
        """Note that the code between those calls begins; False: it cannot be observed."""
        if self._calls.on():
            return True
        self.looks, self._hits = False, []
        self._misses += 1
        return False

    def off(self) -> None:
        """Note that the next of those calls begins."""
        self._calls.off()
        self._returned.interrupted()

    def end(self) -> None:
        """Stop observing."""
        self._calls.end()

    def fed(self, by_loader: bool, given: Any) -> None:
        """Note what a forward that trains receives.

        The first of a step that receives what a function returned decides: one before it may choose
        an action.

        Args:
            by_loader: a DataLoader was asked for a batch in the step.
            given: its arguments.
        """
        self._forwards += 1
        self._by_loader |= by_loader
        if self.looks and not self._makers:
            self._makers = self._returned.makers(given, first=self._forwards == 1)

    def moved(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Note that ``Tensor.to`` or ``Tensor.cuda`` made another tensor."""
        self._returned.moved(source, target)

    def gave(self, output: Any) -> None:
        """Note that a model returned this."""
        self._returned.given_back(output)

    def step_ends(self) -> None:
        """Note that an update was made."""
        if not self._forwards:
            return
        if self.looks:
            makers = frozenset[CodeType]() if self._by_loader else self._makers
            self._hits = [*self._hits, makers] if makers else []
            self._misses = 0 if makers else self._misses + 1
        if len(self._hits) >= _HITS:
            self.found = frozenset().union(*self._hits)
        self.looks = not self._by_loader
        self._forwards, self._by_loader, self._makers = 0, False, frozenset()
        self._returned.step_ends()


class ProducerTimer:
    """Times producers between two calls of models, backward passes and updates, in some steps.

    It records which steps those are.

    Attributes:
        looks: this step is looked at.
    """

    gives_up = False

    def __init__(self, codes: frozenset[CodeType]) -> None:
        self._watch = Stopwatch(codes)
        self._random = random.Random(0)
        self.looks = False
        self._names = {code: name_of(code) for code in codes}
        self._begun: clock.Moment = 0, 0, 0
        self._since = self._next = self._looks = 0
        self._copied = 0  # ns, by calls inside

    def on(self) -> bool:
        """Note that the code between those calls begins; False: it cannot be observed."""
        if not self._watch.on():
            self.looks = False
            return False
        self._copied = 0
        self._begun = clock.now()
        return True

    def off(self) -> None:
        """Note that the next of those calls begins."""
        wall, cpu, queue = clock.since(self._begun)
        self._watch.off()
        segment, waited = recorder.main, max(wall - cpu - max(queue, 0), 0)
        if segment is None:
            return
        for code, (took, calls) in self._watch.took.items():
            asleep, self._copied, copied = max(waited - (wall - took), 0), 0, self._copied
            name = segment.name_id(self._names[code])
            segment.add(
                Stage.MADE, self._begun[0], took, took - asleep, copied, 0, calls, wall, name
            )

    def end(self) -> None:
        """Stop observing."""
        self._watch.end()

    def step_ends(self, segment: Segment | None) -> None:
        """Note that an update was made; None: the next step is not recorded."""
        now = clock.wall_ns()
        if self._since:
            cost = _LOOK_NS + _EVENT_NS * self._watch.events
            if self.looks and segment is not None:
                segment.add(Stage.LOOKED, self._since, now - self._since, extra=self._watch.events)
            self._looks += 1
            # irregularly: else what every tenth step does may always be missed
            rest = cost / _LOOK_BUDGET * (0.5 + self._random.random())
            self._next = now + (int(rest) if self._looks > _CLOSELY else 0)
        self._watch.events = 0
        self.looks = segment is not None and now >= self._next
        self._since = now if self.looks else 0

    def copied(self, took: int) -> None:
        """Note that a tensor was copied in this many ns.

        If a function that makes batches did it, that time is a stage of its own.
        """
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code in self._watch.codes:
                self._copied += took
                return
            frame = frame.f_back


class ResidentInput:
    """The memory that models have got and returned, held weakly.

    Attributes:
        looks_inside: the last call got no tensor at all: the model takes its data itself, and what
            the modules that it calls get from it decides (``took``, ``settled``).
    """

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[_StorageRef, Any]] = {}
        self._returned: dict[int, tuple[_StorageRef, int]] = {}
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
                reference = _StorageRef(value.untyped_storage())
                if reference.cdata not in self._given:
                    self._returned[reference.cdata] = reference, value._version
        _shorten(self._returned)

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
        self._seen[piece] = self._seen[at] = _StorageRef(storage), (content, version)
        _shorten(self._seen)
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
    if parts is None or depth > _DEPTH or len(parts) > _MAX_VALUES:
        yield value
    else:
        for part in parts:
            yield from _values(part, depth + 1)
