"""Records losses, learning rates, gradient norms and the optimizer's setup of a training, called by the other taps.

    forward (training, gradients)  -> samples          taps/training.py
    GradScaler.scale               -> the loss before it was scaled
    backward(loss)                 -> the loss; before it and after it: norms (norms.py)
    a bucket is reduced            -> norms            taps/collectives/tap.py
    optimizer.step                 -> values are written, the next update begins

Nothing is changed and no random number is drawn. On a GPU nothing waits: values stay there until the GPU has passed them (norms.py).
"""

import functools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from feedline.profiler import clock, masks
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import ReportHook
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.convergence.norms import DeviceNumbers, GradientNormTap, WhenImported
from feedline.profiler.taps.convergence.sample_count import SampleCount
from feedline.profiler.taps.convergence.training_setup import TrainingSetup, parts_of, rows_of
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.updates import OpenSteps
from feedline.profiler.torch_internals import below_user_modes, hide_from_dynamo, in_backward

NAME = "convergence"
GIVES = "losses, learning rate, and gradient norms where there are several ranks or micro-batches"
_OWN_CURVES = ("train loss", "eval loss", "lr")  # names of curves that are not the program's
# backwards without an update; whoever updates by hand never makes one that is seen
_MOST_LOSSES = 256
_LEAST_SCALE = 1e-30  # of a GradScaler: from there it can fall to 0, and no further
_MOST_OTHERS = 64  # optimizers that take turns with the one whose learning rate is recorded
_ReportSetup = Callable[[dict[str, object]], None]


class _ConvergenceWatch:
    """Receives events of a training from the other taps. No method raises.

    Attributes:
        updates: optimizer steps made.
    """

    def __init__(self, report: ReportHook, report_setup: _ReportSetup) -> None:
        self._report, self._report_setup = report, report_setup
        self.updates = 0
        self._open, self._nested = OpenSteps(), 0  # steps within those of other optimizers
        self._seen = SampleCount()
        self._before = 0  # samples at the last update
        self._loss: deque[Any] = deque(maxlen=_MOST_LOSSES)  # numbers, or tensors on a GPU
        self._aside: Any = None  # what autograd.grad was called on last, a number or a tensor
        # losses of the closure of the update that is under way; None: none is
        self._closure_losses: int | None = None
        self._evaluated: tuple[torch.Tensor | None, int] = None, 0  # sum and number
        self._model: Callable[[], Any] = lambda: None  # a weak reference to the one trained last
        self._on_gpu = False  # the last loss was
        self._scaled_at = 0  # updates when GradScaler.update was called last
        # False: since the last update that was seen, its scale has not fallen where one was missing
        self._sees_steps = True
        # what GradScaler.scale returned, and was given
        self._scaled: tuple[Any, Any] = ((lambda: None), None)
        self._rate: float | None = None
        self._rate_of: int | None = None  # the optimizer whose rate is recorded, by its id
        # others that have updated since it did: ns, rate, samples and updates
        self._other_rates: dict[int, tuple[int, float, int, int]] = {}
        self._later = DeviceNumbers(self)
        self.setup = TrainingSetup()
        self.norms = GradientNormTap(self, self._later)

    @property
    def samples(self) -> int:
        """Samples that this rank has trained on.

        They are rows of the models' input if no loader feeds the training.
        """
        return self._seen.number

    @property
    def samples_before(self) -> int:
        """Samples that this rank had trained on at the last update."""
        return self._before

    @property
    def updates_with_pause(self) -> int:
        """Optimizer steps made, with those of a pause that is under way."""
        return self._with_rest()[0]

    @property
    def samples_of_loaders(self) -> int | None:
        """Samples that this rank has trained on, with those of a pause; None: no loader says."""
        return self._with_rest()[1] if self._seen.known else None

    @property
    def model(self) -> Any:
        """The model trained most recently, or None."""
        return self._model()

    @property
    def fresh(self) -> int:
        """Samples on this rank since the last update."""
        return self.samples - self._before

    def attach(self, patches: Patches, when_imported: WhenImported) -> None:
        """Begin to watch."""
        recorder.convergence = self
        self.setup.attach(patches)
        self.norms.attach(patches, when_imported)
        original = torch.amp.GradScaler.scale

        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self._has_scaled(scaler, outputs, scaled)
            return scaled

        adjust = torch.amp.GradScaler.update

        @functools.wraps(adjust)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            # a scale that the program sets itself says nothing of its gradients
            before = None if args or kwargs else self._scale_to_look_at(scaler)
            adjusted = adjust(scaler, *args, **kwargs)
            self._scaler_updated(scaler, before)
            return adjusted

        patches.set(torch.amp.GradScaler, "scale", scale)
        patches.set(torch.amp.GradScaler, "update", update)

    @below_user_modes
    def stop(self) -> None:
        """Note that the recording ends."""
        if recorder.convergence is self:
            recorder.convergence = None
        try:
            self._flush_evaluation()
            self._later.stop()
            self._report_setup({**self._described(), **self._counts()})
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    def _described(self) -> dict[str, object]:
        return self.setup.found(self.norms.why, self.norms.shared)

    def _counts(self) -> dict[str, object]:
        return {
            "updates": self.updates,
            "steps": self._seen.steps,
            "samples": self.samples,
            "samples_known": self._seen.known,
        }

    def handed_over(self, samples: int) -> None:
        """Note that a loader has returned a batch of this many samples; 0: its size is unknown."""
        self._seen.handed_over(samples)

    def inferred(self) -> None:
        """Note that a module was called outside training."""
        self._seen.inferred()

    @below_user_modes
    def forwarded(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Note that a module in training has received a batch.

        Its first tensor gives the number of samples.
        """
        try:
            given = _first_tensor(args, kwargs)
            if in_backward() or _captures(given):
                return
            if self._evaluated[1]:
                self._flush_evaluation()
            if module is not self._model():
                if not is_model(module):
                    return
                self._model = weakref.ref(module)
                self.setup.model(module)
            if self.setup.batch_norms.active:
                self.setup.batch_norms.forwarded(module, args, kwargs, self._seen.last)
            self._seen.forwarded(0 if given is None else rows_of(given))
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    @below_user_modes
    def evaluated(self, value: Any) -> None:
        """Note that a loss module was called without gradients."""
        try:
            if _is_plain_number(value) and not _captures(value):
                total, number = self._evaluated
                detached = value.detach().float().reshape(())
                self._evaluated = (
                    detached
                    if total is None or total.device != detached.device
                    else total + detached,
                    number + 1,
                )
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    @below_user_modes
    def backward(self, tensors: Any, accumulates: bool = True) -> bool:
        """Note that the backward is about to be called on these tensors.

        Returns whether ``after_backward`` must be called.

        Args:
            tensors: as torch is given them.
            accumulates: into ``grad`` of the parameters; what autograd.grad is called on may be a
                term of the loss, and is the loss only where no backward comes.
        """
        try:
            loss = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
            self._on_gpu = on_gpu = isinstance(loss, torch.Tensor) and loss.is_cuda
            if in_backward() or on_gpu and torch.cuda.is_current_stream_capturing():
                return False
            if not accumulates:
                if _is_plain_number(loss):
                    self._aside = loss.detach().float().reshape(()) if on_gpu else loss.item()
                return False
            if self.norms.wanted:
                self.norms.guarded(self.norms.before_backward)
            if loss is not tensors and len(tensors) > 1:  # which of them is the loss?
                return True
            if self.norms.scaled and loss is self._scaled[0]():
                loss = self._scaled[1]
            if self._closure_losses is not None:
                self._closure_losses += 1
            # what a closure computes again is the same loss, not another micro-batch's
            if _is_plain_number(loss) and (self._closure_losses or 1) == 1:
                self._loss.append(loss.detach().float().reshape(()) if on_gpu else loss.item())
        except Exception as error:
            reraise_of_handler()
            self._failed(error)
        return True

    @below_user_modes
    def after_backward(self) -> None:
        """Note that the backward has returned."""
        self.norms.backwards += 1
        if self.norms.wanted:
            self.norms.guarded(self.norms.after_backward)

    @below_user_modes
    def reduced(self, tensor: torch.Tensor, ranks: int, bucket: bool) -> None:
        """Note that a collective sums this tensor over this many ranks.

        It is a bucket of DistributedDataParallel, or a tensor of the program.
        """
        self.norms.guarded(self.norms.reduced, tensor, ranks, bucket)

    @below_user_modes
    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to step; within the step of another it is no update."""
        try:
            if not self._open.begins(optimizer):
                self._nested += 1
                return
            if self._on_gpu and torch.cuda.is_current_stream_capturing():
                return
            new = self.setup.optimizer(optimizer)
            if self.norms.has_parts:
                self.norms.guarded(self.norms.update, optimizer)
            else:
                self.norms.backwards = 0
            self._seen.updated(id(optimizer))
            if not self._loss and self._aside is not None:
                self._loss.append(self._aside)
            self._aside = None
            if self._loss:
                self._write_loss()
            self._learning_rate(optimizer)
            self.updates += 1
            if new:  # for a run that is killed
                self._report_setup(self._described())
            self._before = self.samples
            self._later.read()
            self._closure_losses = 0
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    def updated(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has stepped."""
        if self._open.ends(optimizer):
            self._closure_losses = None

    def metric(self, name: str, value: float) -> None:
        """Note that the program records a number of its own."""
        updates, samples = self._with_rest()
        self._later.number(
            f"{name} (the program's)" if name in _OWN_CURVES else name,
            value,
            None,
            samples,
            updates,
        )

    def paused(self, updates: int, steps: int, batches: int, samples: int) -> None:
        """Note that steps were only counted.

        Args:
            updates: that were made.
            steps: that they make.
            batches: that loaders handed over for them.
            samples: in these.
        """
        counted, updates = updates, self._outermost(updates)
        self._nested += counted - updates
        self._seen.paused(updates, steps, batches, samples)
        self.updates += updates
        self._before = self.samples

    def _with_rest(self) -> tuple[int, int]:
        """Return updates and samples, with those of a pause that is under way."""
        pause = recorder.pause
        if pause is None or not pause.updates:
            return self.updates, self.samples
        taken = sum(samples for _, samples in pause.batches_during_pause.values())
        updates = self._outermost(pause.updates)
        return self.updates + updates, self._seen.with_pause(updates, taken)

    def _outermost(self, updates: int) -> int:
        """Return how many of a pause's updates were no step of another's, as of those before."""
        seen = self.updates + self._nested
        return round(updates * self.updates / seen) if self._nested else updates

    @below_user_modes
    def _has_scaled(self, scaler: Any, outputs: Any, scaled: Any) -> None:
        if not scaler.is_enabled():  # as in programs that may also train in bfloat16
            return
        if _is_plain_number(scaled):
            # its graph goes when the program lets go of it
            self._scaled = (weakref.ref(scaled), outputs.detach())
        self.setup.scaler, self.norms.scaled = scaler, True

    @below_user_modes
    def _scale_to_look_at(self, scaler: Any) -> float | None:
        """Return the scale of a scaler after whose step no update was seen; None: it is not needed.

        To read it waits for the GPU, which has nothing to do after an update that was skipped. Where
        updates are not seen, it waits once.
        """
        try:
            asked = self._sees_steps and scaler.is_enabled()
            if not asked or self.updates_with_pause != self._scaled_at:
                return None
            if self._on_gpu and torch.cuda.is_current_stream_capturing():
                return None
            return float(scaler.get_scale())
        except Exception as error:
            reraise_of_handler()
            self._failed(error)
        return None

    @below_user_modes
    def _scaler_updated(self, scaler: Any, before: float | None) -> None:
        """Note that a scaler was updated; without an update since the last time, it was skipped.

        Gradients were not finite then, and the scale has fallen. If it has not, the update was not
        seen, as in a step that torch.compile made, or the program left it out.

        Args:
            scaler: that was updated.
            before: its scale before; None: it was not needed.
        """
        try:
            if not scaler.is_enabled():
                return
            updates = self.updates_with_pause
            if updates == self._scaled_at:
                if before is not None:
                    self._sees_steps = float(scaler.get_scale()) < max(before, _LEAST_SCALE)
                self.setup.skipped += self._sees_steps
                self._loss.clear()
                self._before = self.samples
                self.norms.skip()
            else:
                self._scaled_at, self._sees_steps = updates, True
        except Exception as error:
            reraise_of_handler()
            self._failed(error)

    def _write_loss(self) -> None:
        """Write the loss of an update; of micro-batches, their sum."""
        total = self._loss.popleft()
        if self._loss:
            where = getattr(total, "device", None)
            total = total + sum(
                loss for loss in self._loss if getattr(loss, "device", None) == where
            )
            self._loss.clear()
        if isinstance(total, torch.Tensor):
            self._later.value("train loss", total)
        else:
            self._later.number("train loss", total)

    def _learning_rate(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the rate of one optimizer; of several that take turns, the one that began.

        Another one that updates again, without this one in between, trains on its own.
        """
        rate = optimizer.param_groups[0].get("lr")
        if isinstance(rate, torch.Tensor):
            if rate.is_cuda:
                return  # to read it would make the program wait
            rate = rate.item()
        if not isinstance(rate, int | float):
            return  # it finds its own
        number = id(optimizer)
        if self._rate_of not in (None, number):
            now = clock.wall_ns(), rate, self.samples, self.updates
            if number not in self._other_rates:
                if len(self._other_rates) < _MOST_OTHERS:
                    self._other_rates[number] = now
                return
            at, self._rate, samples, updates = self._other_rates[number]
            self._later.number("lr", self._rate, at, samples, updates)
        self._rate_of = number
        self._other_rates.clear()
        if rate != self._rate:
            self._rate = rate
            self._later.number("lr", rate)

    def _flush_evaluation(self) -> None:
        total, number = self._evaluated
        if total is not None:
            self._evaluated = None, 0
            self._later.value("eval loss", total / number)

    def _failed(self, error: Exception) -> None:
        recorder.convergence = None
        self._report(NAME, False, f"{GIVES}, until {masks.error(error)}")


def _is_plain_number(value: Any) -> bool:
    """Return whether this rank can read a tensor's single number alone.

    A DTensor's may take a collective.
    """
    return type(value) is torch.Tensor and value.numel() == 1 and (value.is_cpu or value.is_cuda)


def _captures(value: Any) -> bool:
    """Return whether a CUDA graph is being captured with this tensor.

    Then nothing may be read from the GPU.
    """
    return (
        isinstance(value, torch.Tensor)
        and value.is_cuda
        and torch.cuda.is_current_stream_capturing()
    )


def _first_tensor(args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the first tensor in a model's input that has rows."""
    for value in parts_of(args, kwargs):
        if isinstance(value, torch.Tensor) and value.dim():
            return value
    return None


def is_model(module: torch.nn.Module) -> bool:
    """Return whether a module is a model.

    An activation or a transform is none, nor is a copy that DataParallel made for one call.
    """
    return has_parameters(module) and not getattr(module, "_is_replica", False)


def has_parameters(module: torch.nn.Module) -> bool:
    """Return whether a module has parameters; one that cannot be asked is taken to have some.

    A model may have a ``parameters`` of its own that returns a list, takes arguments or is no
    method.
    """
    try:
        return next(iter(module.parameters()), None) is not None
    except Exception:
        reraise_of_handler()
        return True


hide_from_dynamo(has_parameters, whats_called=True)


def attach(
    report: ReportHook, patches: Patches, report_setup: _ReportSetup, when_imported: WhenImported
) -> Callable[[], None]:
    """Watch the training of this process; returns a function that ends it."""
    watch = _ConvergenceWatch(report, report_setup)
    watch.attach(patches, when_imported)
    return watch.stop
