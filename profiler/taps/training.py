"""Times the stages of the main process: forward, loss, backward, gradients and so on.

The others are optimizer, checkpoint and copies between devices. Only the outermost call counts: a
model's layers, a forward that is recomputed inside backward, an optimizer's closure are part of
theirs. Gradients are cleared, unscaled and clipped between these calls. Conversions of a tensor on
one device belong to the caller.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.loss import _Loss

from feedline.profiler import clock
from feedline.profiler.events import Flag, Stage
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.record.optimizer_tracker import OptimizerTracker
from feedline.profiler.record.recorder import ConvergenceTap, Inside, Span, inside, recorder
from feedline.profiler.store.layout import WINDOW
from feedline.profiler.store.segment import Segment, window_of
from feedline.profiler.taps.convergence import has_parameters
from feedline.profiler.taps.dropped_gradients import dropped_gradients
from feedline.profiler.taps.patch import Patches, skip_in_warnings
from feedline.profiler.taps.recording_schedule import schedule, switches
from feedline.profiler.taps.updates import updates
from feedline.profiler.torch_internals import (
    NoDispatchModes,
    below_function_modes,
    dynamo_follows,
    hide_from_dynamo,
    is_traced,
)

_TRAINS = Flag.TRAINING | Flag.GRAD
_MAX_RESULTS = 8  # of a model's results are looked at
_METRICS = "torchmetrics"  # the package: until it is imported, no module is a metric of it


def attach_forward(patches: Patches) -> None:
    """Time the outermost ``nn.Module.__call__``.

    It is a class attribute, so models keep their type, their hooks and their pickles.
    """
    original = torch.nn.Module.__call__
    is_compiling = torch.compiler.is_compiling

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # is_compiling first: what dynamo reads before it becomes a guard
        if is_compiling() or recorder.main is None:
            return original(self, *args, **kwargs)
        if inside.depth:
            return (
                original(self, *args, **kwargs)
                if inside.takes is None
                else inside.takes(original, self, args, kwargs)
            )
        if _METRICS in sys.modules and _is_metric(type(self)):
            return _call_metric(original, self, args, kwargs)
        return _call_outermost(original, self, args, kwargs)

    hide_from_dynamo(skip_in_warnings(__call__))
    patches.set(torch.nn.Module, "_wrapped_call_impl", __call__)  # the name that it is pickled with
    patches.set(torch.nn.Module, "__call__", __call__)
    switches.add(__call__, original)


@skip_in_warnings
def _call_outermost(original: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a module that is not part of another one, in a span of its own."""
    segment = recorder.main
    if segment is None:
        return original(module, *args, **kwargs)
    # a module that TorchScript has frozen has no ``training``
    flags = (Flag.TRAINING if getattr(module, "training", False) else 0) | (
        Flag.GRAD if torch.is_grad_enabled() else 0
    )
    if not flags & Flag.GRAD:
        schedule.forwards_without_gradients += 1
    if recorder.profiled is not None:
        recorder.profiled.forwards(bool(flags & Flag.GRAD))
    flops, own_code = recorder.flops, recorder.own_code
    if own_code is not None:
        if isinstance(module, _Loss):
            own_code.begins(inference=not flags & Flag.GRAD)
        else:
            flags |= own_code.feeds(flags, args, kwargs)
    # without a loader, it may be what makes the batch
    if not recorder.asked and not has_parameters(module):
        flags |= Flag.BARE
    counting = None if flops is None else flops.begin(module)
    inside.depth += 1
    try:
        stage = Stage.LOSS if isinstance(module, _Loss) else Stage.FORWARD
        with Span(segment, stage, segment.name_id(type(module).__name__), 0, flags) as span:
            output = (
                original(module, *args, **kwargs)
                if counting is None
                else counting.call(original, module, *args, **kwargs)
            )
            if stage is Stage.FORWARD and _is_number(output) and not has_parameters(module):
                span.stage = Stage.LOSS
            elif flags & Flag.GRAD and _has_loss(output):
                span.flags |= Flag.WITH_LOSS
            if inside.takes is not None and own_code is not None:
                span.flags |= own_code.settled()
    finally:
        inside.depth -= 1
        inside.takes = None
        if flops is not None and counting is not None:
            flops.end(counting, span)
        if updates.waiting:
            updates.call_ended()
    if own_code is not None:
        own_code.gave(flags, output)
    if recorder.convergence is not None and not is_traced():  # a trace would hold what is asked
        _notify_forward(recorder.convergence, span.stage, flags, module, args, kwargs, output)
        if recorder.graphs is not None and flags & _TRAINS == _TRAINS:
            recorder.graphs.forwarded(output, span.start)
    if own_code is not None:
        own_code.ends(inference=not flags & Flag.GRAD)
    return output


def _notify_forward(
    watch: ConvergenceTap,
    stage: Stage,
    flags: int,
    module: torch.nn.Module,
    args: Any,
    kwargs: Any,
    output: Any,
) -> None:
    """Report a forward in training, or the loss of an evaluation."""
    if stage is Stage.LOSS:
        if not flags & Flag.GRAD:
            watch.evaluated(output)
    elif flags & _TRAINS == _TRAINS:
        watch.forwarded(module, args, kwargs)
    else:
        watch.inferred()


@skip_in_warnings
def _call_metric(original: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a metric: neither it nor a network in it is the model that is trained."""
    inside.depth += 1
    try:
        return original(module, *args, **kwargs)
    finally:
        inside.depth -= 1


@below_function_modes
def _is_metric(kind: type) -> bool:
    """Return whether a module is a metric of torchmetrics, as Lightning's are."""
    return any(str(base.__module__).partition(".")[0] == _METRICS for base in kind.__mro__)


@below_function_modes
def _is_number(output: Any) -> bool:
    """Return whether the result of a module is a loss."""
    with fail_open:  # results of all kinds
        return isinstance(output, torch.Tensor) and output.dim() == 0
    return False


@below_function_modes
def _has_loss(output: Any) -> bool:
    """Return whether a model has computed its loss itself, as in nanoGPT and transformers."""
    with fail_open:  # results of all kinds
        parts = (
            (output.get("loss"),)
            if isinstance(output, dict)
            else output[:_MAX_RESULTS]
            if isinstance(output, tuple)
            else (output,)
        )
        return any(
            isinstance(part, torch.Tensor) and part.dim() == 0 and part.requires_grad
            for part in parts
        )
    return False


def attach_backward(patches: Patches) -> None:
    """Time ``backward()``, and the engine for ``autograd.grad`` and other callers."""
    for function in (torch.autograd.backward, torch.autograd.graph._engine_run_backward):
        patches.enter(function, _watched_backward)
        hide_from_dynamo(function)
        switches.add(function, vars(function)["__wrapped__"])


def _watched_backward(original: Any) -> Any:
    """Time the outermost call.

    Inside a forward (compilation) or a backward (checkpointing) it is part of that.
    """

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        segment = recorder.main
        if segment is None or inside.depth or dynamo_follows():
            return original(*args, **kwargs)
        flops, own_code = recorder.flops, recorder.own_code
        if own_code is not None:
            own_code.begins()
        if recorder.graphs is not None:
            recorder.graphs.backward()
        counting = None if flops is None else flops.begin(None)
        watch = recorder.convergence
        accumulates = kwargs.get("accumulate_grad") is not False  # as autograd.grad does not
        notified = watch is not None and watch.backward(
            args[0] if args else kwargs.get("tensors"), accumulates
        )
        inside.depth += 1
        try:
            with Span(segment, Stage.BACKWARD) as span:
                result = (
                    original(*args, **kwargs)
                    if counting is None
                    else counting.call(original, *args, **kwargs)
                )
        finally:
            inside.depth -= 1
            if flops is not None and counting is not None:
                flops.end(counting, span)
            if updates.waiting:
                updates.call_ended()
        if watch is not None and notified:
            watch.after_backward()
        if own_code is not None:
            own_code.backward()
            own_code.ends()
        return result

    hide_from_dynamo(skip_in_warnings(backward))
    return backward


class _OptimizerTap:
    """Times every optimizer's step."""

    def __init__(self) -> None:
        self._open: list[Span] = []
        self._steps = 0
        self._optimizers = OptimizerTracker()
        self._undo = updates.follow(self._before, self._after)
        recorder.optimizers = self._optimizers

    def attach(self, patches: Patches) -> None:
        """Detect optimizers when they are created."""
        original, made = torch.optim.Optimizer.__init__, self._optimizers.made

        @functools.wraps(original)
        def __init__(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            schedule.made()
            made()
            original(optimizer, *args, **kwargs)

        patches.set(torch.optim.Optimizer, "__init__", __init__)

    def undo(self) -> None:
        """Stop detecting updates."""
        if recorder.optimizers is self._optimizers:
            recorder.optimizers = None
        self._undo()

    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        segment = recorder.main
        if recorder.pause is not None and id(optimizer) not in schedule.known:
            segment = recorder.resume()
        if segment is None:
            return
        own_code = recorder.own_code
        if own_code is not None:
            own_code.update_begins()
        number = self._optimizers.number(optimizer, segment)
        if recorder.convergence is not None:
            recorder.convergence.update(optimizer)
        if recorder.contents is not None:
            recorder.contents.updating(optimizer)
        # what a step that raised left behind
        self._open = [span for span in self._open if span.segment is segment][-8:]
        span = Span(segment, Stage.OPTIMIZER, segment.name_id(type(optimizer).__name__), number)
        self._open.append(span.__enter__())

    def _after(self, optimizer: torch.optim.Optimizer) -> None:
        if recorder.convergence is not None:
            recorder.convergence.updated(optimizer)
        if recorder.main is None or not self._open:
            dropped_gradients.forget(optimizer)
            if recorder.pause is not None:
                recorder.pause.updated(optimizer)
            return
        span = self._open.pop()
        span.__exit__(None, None, None)
        dropped_gradients.updated(optimizer)
        self._steps += 1
        # no loader tells the windows: count updates
        if recorder.batch == 0 and self._steps % WINDOW == 0:
            span.segment.window = window_of(0, self._steps)
        schedule.updated(optimizer, span.segment)
        own_code = recorder.own_code
        if own_code is not None:
            own_code.updated(schedule.cycle.may_end(id(optimizer)))
            own_code.ends()


def attach_optimizer(patches: Patches) -> Callable[[], None]:
    """Time updates; returns a function that ends it."""
    tap = _OptimizerTap()
    tap.attach(patches)
    return tap.undo


def attach_checkpoint(patches: Patches) -> None:
    """Time ``torch.save``."""

    def watched(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            segment = recorder.resume()
            if segment is None:
                return original(*args, **kwargs)
            with Span(segment, Stage.CHECKPOINT) as span:
                result = original(*args, **kwargs)
                span.nbytes = _saved_bytes(*args, **kwargs)
            return result

        return save

    patches.enter(torch.save, watched)


def _saved_bytes(*args: Any, **kwargs: Any) -> int:
    """Return the size of what was saved, from the arguments of ``torch.save``; 0: unknown."""
    with fail_open:  # files of all kinds
        file = args[1] if len(args) > 1 else kwargs["f"]
        if isinstance(file, (str, os.PathLike)):
            return os.stat(file).st_size
        return int(file.tell())
    return 0


GRADIENTS_NAME = "gradients"
GRADIENTS_GIVE = "zero_grad, unscale_, clip_grad_norm_ and clip_grad_value_"
_METHODS = (
    (torch.optim.Optimizer, "zero_grad"),
    (torch.nn.Module, "zero_grad"),
    (torch.amp.GradScaler, "unscale_"),
)
_FUNCTIONS = (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_)


def attach_gradients(patches: Patches) -> None:
    """Time them. Classes that have methods of their own are seen when these call torch's."""
    for owner, name in _METHODS:
        patches.set(owner, name, _watched_gradients(getattr(owner, name)))
    for function in _FUNCTIONS:
        patches.enter(function, _watched_gradients)


def _watched_gradients(original: Any) -> Any:
    """Time the outermost call: inside a forward, a backward or another of these it is part of that."""
    is_compiling, name = torch.compiler.is_compiling, original.__name__
    clears = original is torch.optim.Optimizer.zero_grad

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        segment = recorder.main
        if is_compiling() or segment is None or inside.depth or dynamo_follows():
            if clears and args:
                dropped_gradients.forget(args[0])
            return original(*args, **kwargs)
        with Span(segment, Stage.GRADIENTS, segment.name_id(name)) as span:
            if clears and args and (dropped := dropped_gradients.cleared(args[0])):
                span.extra, span.number = dropped, _number_of(args[0])
            inside.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                inside.depth -= 1

    hide_from_dynamo(skip_in_warnings(call))
    return call


def _number_of(optimizer: torch.optim.Optimizer) -> int:
    """Return the number that the records of an optimizer's updates have; -1: it has none."""
    tracker = recorder.optimizers
    return -1 if tracker is None else tracker.number_of(optimizer)


# torch gives a subclass's __torch_function__ what stands at torch.Tensor.to: it calls us again
_moving = Inside()
_CPU = torch.device("cpu")


def attach_copies(patches: Patches) -> None:
    for name in ("to", "cuda"):
        patches.set(torch.Tensor, name, _watched_copy(getattr(torch.Tensor, name)))


def _watched_copy(original: Any) -> Any:
    """Record a call if its result is on another device than its input."""

    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        segment = recorder.main
        if segment is None or inside.depth or _moving.depth:
            return original(self, *args, **kwargs)
        _moving.depth += 1
        try:
            return _timed_copy(segment, original, self, args, kwargs)
        finally:
            _moving.depth -= 1

    return move


@skip_in_warnings
def _timed_copy(
    segment: Segment, original: Any, self: torch.Tensor, args: Any, kwargs: Any
) -> torch.Tensor:
    """Call it, and write a record if it moved the tensor.

    ``self`` is the tensor; torch.jit.trace names values of a graph after variables in the frame
    that it is called from, but for this one.
    """
    gpu = recorder.gpu
    pair = None if gpu is None else gpu.begin(Stage.COPY)
    start, cpu = clock.wall_ns(), clock.cpu_ns()
    moved: torch.Tensor = original(self, *args, **kwargs)
    wall, cpu = clock.wall_ns() - start, clock.cpu_ns() - cpu
    source = target = _CPU  # as of what stays where it is
    try:
        # a subclass or a mode may return anything: torch.fx gives a proxy
        if isinstance(moved, torch.Tensor):
            source, target, pinned, nbytes = _copy_facts(self, moved)
            own_code = recorder.own_code
            if own_code is not None:
                own_code.moved(self, moved, wall if source != target else 0)
            if source != target:
                flags = pinned | (Flag.NON_BLOCKING if kwargs.get("non_blocking") else 0)
                segment.add(Stage.COPY, start, wall, cpu, nbytes=nbytes, flags=int(flags))
        if gpu is not None:
            gpu.end_copy(pair, start, source, target)
    except Exception:
        reraise_of_handler()
        if gpu is not None:
            gpu.end_copy(pair, start, _CPU, _CPU)
    return moved


@below_function_modes
def _copy_facts(
    tensor: torch.Tensor, moved: torch.Tensor
) -> tuple[torch.device, torch.device, int, int]:
    """Return source, destination, pinned memory or not, and bytes."""
    source, target = tensor.device, moved.device
    if source == target:
        return source, target, 0, 0
    pinned = 0
    if source.type == "cpu" and type(tensor) is torch.Tensor and torch.accelerator.is_available():
        with NoDispatchModes():
            pinned = Flag.PINNED if tensor.is_pinned() else 0
    return source, target, pinned, moved.numel() * moved.element_size()
