"""Losses, learning rates and gradient norms of a training, from the places that the other taps pass by.

    forward (training, gradients)  -> samples          taps/training.py
    GradScaler.scale               -> the loss before it was scaled
    backward(loss)                 -> the loss; before it and after it: norms (norms.py)
    a bucket is reduced            -> norms            taps/collectives/tap.py
    optimizer.step                 -> values are written, the next update begins

Nothing is changed and no random number is drawn. On a GPU nothing waits: values stay there until the GPU has passed them (later.py).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.convergence.later import Later
from feedline.profiler.taps.convergence.norms import Norms
from feedline.profiler.taps.convergence.setup import Setup
from feedline.profiler.taps.patch import Patches

NAME, GIVES = "convergence", "losses, learning rate, and gradient norms where there are several ranks or micro-batches"
Tell = Callable[[str, bool, str], None]
TellSetup = Callable[[dict[str, object]], None]


class Watch:
    """What the other taps tell of a training. Each method returns quietly whatever happens inside.

    Attributes:
        updates: optimizer steps made.
        samples: this rank has trained on.
    """

    def __init__(self, tell: Tell, tell_setup: TellSetup) -> None:
        self._tell, self._tell_setup = tell, tell_setup
        self.updates = self.samples = 0
        self._before = 0  # samples at the last update
        self._loss: list[torch.Tensor] = []
        self._evaluated: list[torch.Tensor] = []
        self._scaled: tuple[Any, Any] = None, None  # what GradScaler.scale returned, and was given
        self._rate: float | None = None
        self._later = Later(self)
        self.setup = Setup()
        self.norms = Norms(self, self._later)

    @property
    def fresh(self) -> int:
        """Samples on this rank since the last update."""
        return self.samples - self._before

    def attach(self, patches: Patches) -> None:
        """Begin to watch."""
        recorder.convergence = self
        self.setup.attach(patches)
        self.norms.attach(patches)
        original = torch.amp.GradScaler.scale

        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self._scaled = scaled, outputs
            self.setup.scaler = scaler
            return scaled

        patches.set(torch.amp.GradScaler, "scale", scale)

    def stop(self) -> None:
        """The recording ends."""
        if recorder.convergence is self:
            recorder.convergence = None
        try:
            self._flush_evaluation()
            self._later.stop()
            self._tell_setup(self.setup.found(self.norms.why))
        except Exception as error:
            self._failed(error)

    def forwarded(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A model in training has seen a batch: the first tensor says of how many samples."""
        try:
            self._flush_evaluation()
            self.setup.model(module)
            self.samples += samples_of(args, kwargs)
        except Exception as error:
            self._failed(error)

    def evaluated(self, value: Any) -> None:
        """A loss module was called without gradients."""
        try:
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                self._evaluated.append(value.detach())
        except Exception as error:
            self._failed(error)

    def backward(self, tensors: Any) -> None:
        """Backward is about to be called on these."""
        try:
            self._with_norms(self.norms.before_backward)
            loss = tensors[0] if isinstance(tensors, list | tuple) and len(tensors) == 1 else tensors
            if loss is self._scaled[0]:
                loss = self._scaled[1]
            self._scaled = None, None
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._loss.append(loss.detach())
        except Exception as error:
            self._failed(error)

    def after_backward(self) -> None:
        """It has returned."""
        self._with_norms(self.norms.after_backward)

    def reduced(self, tensor: torch.Tensor, ranks: int, bucket: bool) -> None:
        """A collective sums this tensor over so many ranks: a bucket of DistributedDataParallel, or what the program gave."""
        self._with_norms(self.norms.reduced, tensor, ranks, bucket)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        try:
            self.setup.optimizer(optimizer)
            self._with_norms(self.norms.update, optimizer)
            if self._loss:
                self._later.value("train loss", self._loss, torch.stack([loss.float() for loss in self._loss]).sum())
                self._loss = []
            self._learning_rate(optimizer)
            self.updates += 1
            if self.updates == 1:  # for a run that is killed
                self._tell_setup(self.setup.found(self.norms.why))
            self._before = self.samples
            self._later.read()
        except Exception as error:
            self._failed(error)

    def metric(self, name: str, value: float) -> None:
        """The program tells a number of its own."""
        self._later.number(name, value)

    def _with_norms(self, act: Callable[..., None], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:  # a sparse gradient, ...: the rest goes on
            self.norms.give_up(error)

    def _learning_rate(self, optimizer: torch.optim.Optimizer) -> None:
        rate = float(optimizer.param_groups[0]["lr"])
        if rate != self._rate:
            self._rate = rate
            self._later.number("lr", rate)

    def _flush_evaluation(self) -> None:
        if self._evaluated:
            values, self._evaluated = self._evaluated, []
            self._later.value("eval loss", values, torch.stack([value.float() for value in values]).mean())

    def _failed(self, error: Exception) -> None:
        recorder.convergence = None
        self._tell(NAME, False, f"{GIVES}, until {type(error).__name__}: {error}")


def samples_of(args: Any, kwargs: Any) -> int:
    """Rows of the first tensor that a model is given; 0 where there is none."""
    return next((int(value.shape[0]) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.dim()), 0)
