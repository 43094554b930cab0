"""Observes the program's own code.

It runs in the training's thread between calls of models, backward passes and updates. What it calls
is timed in stretches that are chosen by chance, to show where the stage ``other`` goes
(stretches.py). The rest of this package finds the function that makes the program's batches, and
times it.

A program without a DataLoader makes its batches itself, anywhere in its loop. In a few steps, all
Python calls that the loop makes outside models, backward passes and updates are observed. If a
forward in each of three steps in a row receives a tensor that a function returned, that function
makes the batches; from then on only it is timed, in some of the steps (producers.py). If a model's
input was not returned by a function, as in a loop that indexes a tensor itself, it stays unknown,
unless it is in memory all the time (producers.py).
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from feedline.profiler.events import Flag
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.record.recorder import inside, recorder
from feedline.profiler.taps.own_code.producers import ProducerFinder, ProducerTimer, ResidentInput
from feedline.profiler.taps.own_code.stretches import OwnCodeTimer
from feedline.profiler.taps.patch import skip_in_warnings
from feedline.profiler.torch_internals import (
    NoFunctionModes,
    dynamo_follows,
    hide_from_dynamo,
    is_traced,
    is_transformed,
)

NAME = "the program's own code"
GIVES = (
    "the functions outside models that take time, and the one that makes batches without a loader"
)
_TRAINS = Flag.TRAINING | Flag.GRAD


class _OwnCodeTap:
    """Receives the outermost calls of models, backward passes and updates.

    It does so in the thread that calls the first model. No method raises an Exception: the tap ends
    instead.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._phase: ProducerFinder | ProducerTimer | None = ProducerFinder()
        self._resident: ResidentInput | None = ResidentInput()
        self._own: OwnCodeTimer | None = OwnCodeTimer()
        # what observes the code that runs now
        self._seeing: ProducerFinder | ProducerTimer | OwnCodeTimer | None = None
        self._paused = 0  # stages that are open which are none of the program's own code
        self._updating = False  # an optimizer makes an update
        self._inference = False  # the last model was called without gradients
        # an optimizer made an update: until then, each backward pass ends a step
        self._updated = False

    def begins(self, inference: bool = False) -> None:
        """Note that one of these calls is about to be made.

        Args:
            inference: it is a forward without gradients.
        """
        if threading.get_ident() == self._thread:
            self._inference = inference
            if self._seeing is not None:
                self._off(inference)

    def ends(self, inference: bool = False) -> None:
        """Note that the call has returned or raised, as ``begins``."""
        if self._seeing is not None or threading.get_ident() != self._thread:
            return
        phase, own = self._phase, self._own
        looks = phase is not None and phase.looks
        try:
            if phase is not None and looks:
                self._see(phase)
            elif (
                own is not None
                and not self._paused
                and not self._updating
                and own.chooses(inference)
            ):
                self._see(own)
        except Exception:
            reraise_of_handler()
            self._drop(phase if looks else own)

    def pauses(self) -> None:
        """Note that a stage begins that is none of the program's own code.

        Such is waiting for a loader.
        """
        if threading.get_ident() == self._thread:
            self._paused += 1
            if self._seeing is not None and self._seeing is self._own:
                self._off(self._inference, asks=True)

    def resumes(self) -> None:
        """Note that such a stage has ended."""
        if threading.get_ident() == self._thread and self._paused:
            self._paused -= 1
            if not inside.depth and self._seeing is None:
                self.ends(self._inference)

    def feeds(self, flags: int, args: Any, kwargs: Any) -> int:
        """Note that a model is about to be called.

        Return ``Flag.RESIDENT`` if all of its arguments were in memory before, else 0. A model that
        gets no tensor takes its data itself: then ``inside.takes`` looks at the modules that it
        calls, and ``settled`` says.
        """
        self.begins(inference=not flags & Flag.GRAD)
        inside.takes = None
        again = self._stays((args, kwargs)) if self._resident is not None else 0
        if flags & _TRAINS == _TRAINS and self._phase is not None:
            self._thread = self._thread or threading.get_ident()
            if isinstance(self._phase, ProducerFinder):
                self._notify(self._phase.fed, recorder.asked, (args, kwargs))
        return again

    def settled(self) -> int:
        """Note that a model that ``inside.takes`` looked into is about to return, as ``feeds``."""
        resident = self._resident
        if resident is None:
            return 0
        again = resident.settled()
        self._end_if_given_up(resident)
        return Flag.RESIDENT if again else 0

    def gave(self, flags: int, output: Any) -> None:
        """Note that a model returned this."""
        if isinstance(self._phase, ProducerFinder):
            self._notify(self._phase.gave, output)
        if self._resident is not None and not flags & Flag.BARE and not is_transformed():
            try:
                with NoFunctionModes():
                    self._resident.gave(output)
            except Exception:
                reraise_of_handler()
                self._resident = None

    def moved(self, source: torch.Tensor, target: torch.Tensor, took: int) -> None:
        """Note that ``Tensor.to`` or ``Tensor.cuda`` returned ``target``.

        ``took``: ns, 0 if it is on the same device.
        """
        if self._seeing is None or source is target or threading.get_ident() != self._thread:
            return
        if self._seeing is self._own:
            self._own.copied(took)
            return
        if isinstance(self._phase, ProducerFinder):
            self._notify(self._phase.moved, source, target)
        elif self._phase is not None and took:
            self._notify(self._phase.copied, took)

    def backward(self) -> None:
        """Note that a backward pass was made."""
        if self._own is not None:
            self._notify_own(self._own.loop_runs)
        if not self._updated:
            self._step_ends()

    def update_begins(self) -> None:
        """Note that an optimizer is about to make an update.

        What it calls meanwhile, such as a closure, is its own.
        """
        self.begins()
        self._updating |= threading.get_ident() == self._thread

    def updated(self, last: bool) -> None:
        """Note that an update was made.

        Args:
            last: the step may be over.
        """
        self.begins()  # a closure of the optimizer may have called a model
        self._updating = False
        self._updated = True
        if last:
            self._step_ends()
            recorder.asked = False

    def end(self) -> None:
        """Stop observing and detach."""
        ended, self._phase, self._own, self._resident = (self._phase, self._own), None, None, None
        self._seeing = None
        if recorder.own_code is self:
            recorder.own_code = None
        for observer in ended:
            if observer is not None:
                with fail_open:
                    observer.end()

    def _stays(self, given: Any) -> int:
        resident = self._resident
        if (
            resident is None
            or is_traced()
            or is_transformed()
            or threading.get_ident() != (self._thread or threading.get_ident())
        ):
            return 0
        try:
            with NoFunctionModes():
                again = not recorder.asked and resident.fed(given)
                if not recorder.asked and resident.looks_inside:
                    inside.takes = self._takes
        except Exception:
            reraise_of_handler()
            again, self._resident = False, None
        if recorder.asked:
            resident.new_elsewhere()
        self._end_if_given_up(resident)
        return Flag.RESIDENT if again else 0

    @skip_in_warnings
    def _takes(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module for a model that takes its data itself.

        Modules inside one that got data get what it made.
        """
        inside.takes = None if self._took(args, kwargs) else self._takes
        try:
            return original(module, *args, **kwargs)
        finally:
            inside.takes = self._takes

    def _took(self, args: Any, kwargs: Any) -> bool:
        """Return whether a module got data."""
        if self._resident is None or is_traced() or is_transformed():
            return True
        try:
            with NoFunctionModes():
                return self._resident.took((args, kwargs))
        except Exception:
            reraise_of_handler()
            self._resident = None
            return True

    def _end_if_given_up(self, resident: ResidentInput) -> None:
        if resident.gives_up:
            self._resident = None
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._phase is None and self._resident is None and self._own is None:
            self.end()

    def _step_ends(self) -> None:
        if isinstance(self._phase, ProducerFinder):
            self._notify(self._find, self._phase)
        if isinstance(self._phase, ProducerTimer):
            self._notify(self._phase.step_ends, recorder.main)
        if self._own is not None:
            self._notify_own(self._own.step_ends, recorder.main)
        if self._resident is not None and threading.get_ident() == self._thread:
            self._resident.step_ends()

    def _notify_own(self, method: Any, *args: Any) -> None:
        if threading.get_ident() == self._thread:
            try:
                method(*args)
            except Exception:
                reraise_of_handler()
                self._drop(self._own)

    def _find(self, finder: ProducerFinder) -> None:
        finder.step_ends()
        if finder.found:
            finder.end()
            self._phase = ProducerTimer(finder.found)
        elif finder.gives_up:
            finder.end()
            self._phase = None
            self._end_if_idle()

    def _see(self, observer: ProducerFinder | ProducerTimer | OwnCodeTimer) -> None:
        if recorder.main is not None and not dynamo_follows() and observer.on():
            self._seeing = observer

    def _off(self, inference: bool, asks: bool = False) -> None:
        observer, self._seeing = self._seeing, None
        try:
            if isinstance(observer, OwnCodeTimer):
                observer.off(inference, asks)
            elif observer is not None:
                observer.off()
        except Exception:
            reraise_of_handler()
            self._drop(observer)

    def _drop(self, observer: ProducerFinder | ProducerTimer | OwnCodeTimer | None) -> None:
        """End it, and leave the others: it does not work here."""
        if observer is None or observer is not self._own:
            self.end()
            return
        self._own = self._seeing = None
        with fail_open:
            observer.end()
        self._end_if_idle()

    def _notify(self, method: Any, *args: Any) -> None:
        if threading.get_ident() != self._thread or is_transformed():
            return
        try:
            with NoFunctionModes():
                method(*args)
        except Exception:
            reraise_of_handler()
            self.end()


for _method in (
    "begins",
    "ends",
    "pauses",
    "resumes",
    "update_begins",
    "feeds",
    "settled",
    "gave",
    "moved",
    "backward",
    "updated",
):
    hide_from_dynamo(vars(_OwnCodeTap)[_method], whats_called=True)
hide_from_dynamo(_OwnCodeTap._takes)
hide_from_dynamo(_OwnCodeTap._took, whats_called=True)


def attach() -> Callable[[], None]:
    """Attach; returns a function that ends it.

    Raises RuntimeError if this Python allows no further tool.
    """
    tap = recorder.own_code = _OwnCodeTap()
    os.register_at_fork(after_in_child=tap.end)
    return tap.end
