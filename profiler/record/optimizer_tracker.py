"""Records what is needed to split one process into several trainings.

A program that trains one model after another (a sweep, the folds of a cross-validation) creates an
optimizer for each. Which optimizers belong to one training is decided when the run is read
(store/trainings.py), because only then is it known which of them alternate. This module records the
facts: each optimizer gets a number, and at its first update a record (events.Stage.BEGUN) names the
earlier optimizer that it belongs with: one that has parameters of the same modules, or one that has
made an update since this one began. If there is none, the sums of all records before it follow
(Stage.SUMS), so that they stay exact when a long run discards windows.

Weak references are to optimizers and modules, never to parameters: torch refuses to swap a tensor
that has weak references.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.profiler import clock
from feedline.profiler.events import Flag, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.layout import FIELDS, STAGES
from feedline.profiler.store.record_columns import RECORD_DTYPE, sums_of
from feedline.profiler.store.segment import Mark, Segment

_MAX_OPTIMIZERS = 1000  # optimizers; those after them belong to the last training
# times that a new optimizer turned out to belong to one and the same training: this program makes
# them as it trains
_MAX_JOINED = 16
_UNSUMMED = (Stage.NAME, Stage.BEGUN, Stage.SUMS)
_OF_CPU = 256  # more than stages there are: ``source`` of the second record of a stage's sums


class ObjectNumbers:
    """Numbers living objects from 0 in order of appearance.

    The number of a freed object is not reused.
    """

    def __init__(self) -> None:
        self.known: dict[int, int] = {}  # id -> number
        self._references: dict[int, Any] = {}
        self.count = 0

    def meet(self, thing: Any, number: int | None = None) -> int:
        """Give an object a number, unless it is known."""
        key = id(thing)
        given = self.known[key] = self.count if number is None else number
        self._references[key] = weakref.ref(thing, functools.partial(self._forget, key))
        self.count += 1
        return given

    def _forget(self, key: int, _: object) -> None:
        self.known.pop(key, None)
        self._references.pop(key, None)


class _RunningSums:
    """Sums of a segment's records. Each look reads what was written since the one before."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        # generation of the file, how many of its records are summed, and the sums; replaced as a
        # whole, as threads may look at once
        self._summed = -1, 0, np.zeros((STAGES, FIELDS), np.int64)

    def before(self, mark: Mark) -> npt.NDArray[np.int64]:
        """Return the sums of the records that started before a mark, forgotten or not.

        int64 [64, 8]. It is exact unless windows were forgotten since the mark; then what was
        forgotten of the time since counts as before it.

        Raises:
            OSError, ValueError: the file cannot be read, or is closed.
        """
        generation, number, sums = self._summed
        written = self.segment.written_since(generation, number)
        if written.generation != generation:
            number, sums = 0, np.zeros_like(sums)
        records = np.frombuffer(written.records, RECORD_DTYPE)
        records = records[records["stage"] != 0]
        sums = sums + sums_of(records)
        self._summed = written.generation, number + len(records), sums
        forgotten = mark if mark.generation == written.generation else written
        return (
            sums
            - sums_of(records[records["start"] >= mark.at])
            + np.frombuffer(forgotten.forgotten, np.int64).reshape(STAGES, FIELDS)
        )


class OptimizerTracker:
    """Follows the optimizers of a recording.

    Attributes:
        optimizers: those that have made an update.
        first: number of the first optimizer that belongs to the current training; one with a lower
            number adds its own training to it.
        began: ns, where the first pass began that fed the newest optimizer.
    """

    def __init__(self) -> None:
        self.optimizers = ObjectNumbers()
        self.first = self.began = 0
        self._firsts: dict[int, int] = {}  # optimizer -> first one of its training
        self._newest = 0
        self._living: dict[
            int, tuple[Callable[[], Any], frozenset[int]]
        ] = {}  # optimizers by number, ids of their parameters
        # modules with parameters of their own -> the optimizer that came with them
        self._owners = ObjectNumbers()
        # met last, its parameters, with whom
        self._model: tuple[Callable[[], Any], frozenset[int], int] = (
            (lambda: None),
            frozenset(),
            0,
        )
        # times that a new optimizer turned out to belong to the training of this one:
        self._joined = 0
        self._target = -1
        self._mark: Mark | None = None  # where a loader's pass began, since the last update
        self._batch = -1  # recorder.batch at the mark
        self._samples = 0  # that this rank had trained on at the mark
        # an optimizer was made since the last update: the first pass after that is the next
        # training's
        self._made = False
        self._sums: _RunningSums | None = None

    def made(self) -> None:
        """Note that an optimizer is being created."""
        self._made, self._mark = True, None

    def pass_begins(self, segment: Segment) -> None:
        """Note that a pass over a loader is about to begin.

        It never raises.
        """
        batch = recorder.batch
        # loaders that are gone through together begin one by one
        if self._mark is None or not (self._made or batch == self._batch):
            try:
                self._mark, self._batch = segment.mark(clock.wall_ns()), batch
                self._samples = (
                    recorder.convergence.samples if recorder.convergence is not None else 0
                )
            except Exception:
                reraise_of_handler()
                self._mark = None

    def number_of(self, optimizer: Any) -> int:
        """Return the number of an optimizer that has made an update; -1: it has made none."""
        return self.optimizers.known.get(id(optimizer), -1)

    def number(self, optimizer: Any, segment: Segment) -> int:
        """Return the number of an optimizer that is about to step.

        It never raises.
        """
        number = self.optimizers.known.get(id(optimizer))
        try:
            if number is None:
                number = self._begun(optimizer, segment)
            elif number < self.first:
                self._join(number, segment)
        except Exception:  # fail open: it counts as part of the current training
            reraise_of_handler()
            number = self.optimizers.known.get(id(optimizer), 0)
        if self._mark is not None or self._made:
            self._mark, self._made = None, False
        return number

    def _begun(self, optimizer: Any, segment: Segment) -> int:
        from feedline.profiler.torch_internals import NoFunctionModes

        with NoFunctionModes():  # a mode of the program's counts even questions for a shape
            return self._note(optimizer, segment)

    def _note(self, optimizer: Any, segment: Segment) -> int:
        number = self.optimizers.meet(optimizer)
        if number >= _MAX_OPTIMIZERS or self._joined >= _MAX_JOINED and self._mark is None:
            return number
        parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        own = frozenset(map(id, parameters))
        related = {*self._with_parameters(own), *self._of_model(own, number)}
        self.first = min((self._firsts[other] for other in related), default=number)
        self._firsts[number], self._newest = self.first, number
        self._living[number] = weakref.ref(optimizer), own
        watch, now = recorder.convergence, clock.wall_ns()
        samples = (
            self._samples
            if self._mark is not None
            else watch.samples_before
            if watch is not None
            else 0
        )
        self.began = self._mark.at if self._mark is not None else now
        segment.add_for_good(
            Stage.BEGUN,
            self.began,
            now - self.began,
            cpu=watch.updates if watch is not None else 0,
            runqueue=samples,
            nbytes=sum(tensor.numel() for tensor in parameters),
            number=number,
            extra=self.first,
            source=segment.name_id(type(optimizer).__name__),
            flags=Flag.FIRST if self._mark is not None else 0,
        )
        if self.first == number > 0:
            if recorder.on_new_training is not None:
                recorder.on_new_training()
            if self._sums is None or self._sums.segment is not segment:
                self._sums = _RunningSums(segment)
            _write_sums(self._sums, self._mark or segment.mark(now))
        return number

    def _with_parameters(self, own: frozenset[int]) -> Iterator[int]:
        """Return the earlier optimizers, still there, of some of these parameters."""
        for other, (reference, theirs) in list(self._living.items()):
            if reference() is None:
                del self._living[other]
            elif not own.isdisjoint(theirs):
                yield other

    def _of_model(self, own: frozenset[int], number: int) -> list[int]:
        """Return the earlier optimizers of the modules that parameters belong to.

        Only modules that are part of the model that was trained last count.
        """
        watch = recorder.convergence
        model = None if watch is None else watch.model
        if model is None:
            return []
        known, parameters, other = self._model
        # one optimizer for each parameter: the same model as many times
        if known() is model and not own.isdisjoint(parameters):
            return [other]
        parameters = frozenset(map(id, model.parameters()))
        if own.isdisjoint(parameters):
            return []
        self._model = weakref.ref(model), parameters, number
        related = []
        for module in model.modules():
            if any(
                tensor.requires_grad or id(tensor) in own
                for tensor in module.parameters(recurse=False)
            ):
                earlier = self._owners.known.get(id(module))
                if earlier is None:
                    self._owners.meet(module, number)
                else:
                    related.append(earlier)
        return related

    def _join(self, number: int, segment: Segment) -> None:
        """Let an older optimizer continue: all that began since then belong to its training."""
        first, newest = self._firsts[number], self._newest
        self._joined = self._joined + 1 if first == self._target else 1
        self.first = self._target = self._firsts[newest] = first
        segment.add_for_good(
            Stage.BEGUN, clock.wall_ns(), 0, number=newest, extra=first, flags=Flag.END
        )


def _write_sums(running: _RunningSums, mark: Mark) -> None:
    """Write the sums of all records before a mark. Raises as ``RunningSums.before``."""
    segment, sums = running.segment, running.before(mark)
    for stage in Stage:
        number, wall, cpu, runqueue, nbytes, extra = sums[stage, : FIELDS - 2].tolist()
        if number and stage not in _UNSUMMED:
            segment.add_for_good(
                Stage.SUMS,
                mark.at,
                0,
                cpu=wall,
                nbytes=nbytes,
                number=number,
                extra=extra,
                source=int(stage),
            )
            segment.add_for_good(
                Stage.SUMS, mark.at, 0, cpu=cpu, runqueue=runqueue, source=int(stage) + _OF_CPU
            )
