"""Tensors that move between devices: ``Tensor.to`` and ``Tensor.cuda``. Conversions on one device are the caller's own time."""

import functools
from typing import Any

import torch

from feedline.profiler import clock
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import inside, recorder
from feedline.profiler.taps.patch import Patches


def attach(patches: Patches) -> None:
    for name in ("to", "cuda"):
        patches.set(torch.Tensor, name, watched(getattr(torch.Tensor, name)))


def watched(original: Any) -> Any:
    """Record a call if its result is on another device than its input."""

    @functools.wraps(original)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        segment = recorder.main
        if segment is None or inside.depth:
            return original(self, *args, **kwargs)
        gpu = recorder.gpu
        pair = None if gpu is None else gpu.begin(Stage.COPY)
        start, cpu = clock.wall_ns(), clock.cpu_ns()
        moved = original(self, *args, **kwargs)
        if moved.device != self.device:
            wall, cpu = clock.wall_ns() - start, clock.cpu_ns() - cpu
            pinned = Flag.PINNED if self.device.type == "cpu" and torch.accelerator.is_available() and self.is_pinned() else 0
            flags = pinned | (Flag.NON_BLOCKING if kwargs.get("non_blocking") else 0)
            segment.add(Stage.COPY, start, wall, cpu, nbytes=moved.numel() * moved.element_size(), flags=int(flags))
        if gpu is not None:
            gpu.end_copy(pair, start, self.device, moved.device)
        return moved

    return move
