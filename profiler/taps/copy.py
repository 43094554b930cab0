"""Times copies between devices: ``Tensor.to`` and ``Tensor.cuda``. Conversions on one device belong to the caller."""

from typing import Any

import torch

from feedline.profiler import clock
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.below_dispatch import NoDispatchModes, below_function_modes
from feedline.profiler.record.recorder import Inside, inside, recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.patch import Patches, skip_in_warnings

_moving = Inside()  # torch gives a subclass's __torch_function__ what stands at torch.Tensor.to: it calls us again


def attach(patches: Patches) -> None:
    for name in ("to", "cuda"):
        patches.set(torch.Tensor, name, _watched(getattr(torch.Tensor, name)))


def _watched(original: Any) -> Any:
    """Record a call if its result is on another device than its input."""

    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        segment = recorder.main
        if segment is None or inside.depth or _moving.depth:
            return original(self, *args, **kwargs)
        _moving.depth += 1
        try:
            return timed(segment, original, self, args, kwargs)
        finally:
            _moving.depth -= 1

    return move


@skip_in_warnings
def timed(segment: Segment, original: Any, self: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """Call it, and write a record if it moved the tensor.

    Args:
        self: the tensor; torch.jit.trace names values of a graph after variables in the frame that it is called from, but for this one.
    """
    gpu = recorder.gpu
    pair = None if gpu is None else gpu.begin(Stage.COPY)
    start, cpu = clock.wall_ns(), clock.cpu_ns()
    moved: torch.Tensor = original(self, *args, **kwargs)
    wall, cpu = clock.wall_ns() - start, clock.cpu_ns() - cpu
    source, target, pinned, nbytes = facts(self, moved)
    own_code = recorder.own_code
    if own_code is not None:
        own_code.moved(self, moved, wall if source != target else 0)
    if source != target:
        flags = pinned | (Flag.NON_BLOCKING if kwargs.get("non_blocking") else 0)
        segment.add(Stage.COPY, start, wall, cpu, nbytes=nbytes, flags=int(flags))
    if gpu is not None:
        gpu.end_copy(pair, start, source, target)
    return moved


@below_function_modes
def facts(tensor: torch.Tensor, moved: torch.Tensor) -> tuple[torch.device, torch.device, int, int]:
    """Source, destination, pinned memory or not, bytes."""
    source, target = tensor.device, moved.device
    if source == target:
        return source, target, 0, 0
    pinned = 0
    if source.type == "cpu" and type(tensor) is torch.Tensor and torch.accelerator.is_available():
        with NoDispatchModes():
            pinned = Flag.PINNED if tensor.is_pinned() else 0
    return source, target, pinned, moved.numel() * moved.element_size()
