"""Finds the calls that returned the tensors of a model's input.

Tensors are held by weak references, so none lives longer.
"""

import random
import sys
import weakref
from collections import UserDict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from feedline import profiler
from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.own_code.python_calls import Calls, Stopwatch
from feedline.profiler.taps.patch import SKIPPED_FILE_SUFFIX
from feedline.profiler.taps.source_names import name_of
from feedline.profiler.torch_internals import NoFunctionModes

_MAX_PARTS = 64  # of a value are looked at
DEPTH = 2  # of lists in lists
_KEPT = 512  # storages: those that came first are forgotten
_LOOKED_AT = 4  # of them, each time that one is added
_LIBRARY_PATHS = (torch.__path__[0], profiler.__path__[0])


class StorageRef(StorageWeakRef):
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
        self._calls: dict[int, tuple[StorageRef, list[_Call]]] = {}
        self._outputs: dict[int, StorageRef] = {}
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
            reference = StorageRef(tensor.untyped_storage())
            self._outputs[reference.cdata] = reference
        shorten(self._outputs)

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
        reference = StorageRef(tensor.untyped_storage())
        _, calls = self._calls.pop(reference.cdata, (reference, []))
        if any(self._hands_on(call, earlier, tensor) for earlier in calls):
            self._calls[reference.cdata] = reference, calls
            return
        outside = [earlier for earlier in calls if earlier.number <= call.number]
        self._calls[reference.cdata] = reference, [*outside, call][-_MAX_PARTS:]
        shorten(self._calls)

    def _hands_on(self, call: _Call, earlier: _Call, tensor: torch.Tensor) -> bool:
        return self._before < earlier.number < call.number and earlier.tensor() is tensor


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Return the plain tensors in a value and in plain containers; runs no code of the program."""
    if type(value) is torch.Tensor:
        if value.layout is torch.strided:
            yield value
    elif depth <= DEPTH:
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


def shorten(kept: dict[Any, Any]) -> None:
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


_HITS = 3  # steps in turn whose batch comes from a function
_FINDER_MISSES = 4  # steps in turn whose batch comes from none, after which it stays unknown
_MOST_CALLS_SEEN = 60_000  # at 0.25 us each: 15 ms in the whole run


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


_CLOSELY = 32  # steps that are looked at one after another, to begin with
_EVENT_NS, _LOOK_NS = 300, 60_000  # cost of observing a call, and of observing a step
_LOOK_BUDGET = 0.003  # of the time, for the looks that follow


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
