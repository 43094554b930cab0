"""Times the clearing, unscaling and clipping of gradients between calls of the model, backward and the optimizer."""

import functools
from typing import Any

import torch

from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import Span, inside, recorder
from feedline.profiler.taps.patch import Patches, skip_in_warnings
from feedline.profiler.torch_internals import dynamo_follows, hide_from_dynamo

NAME, GIVES = "gradients", "zero_grad, unscale_, clip_grad_norm_ and clip_grad_value_"
_METHODS = ((torch.optim.Optimizer, "zero_grad"), (torch.nn.Module, "zero_grad"), (torch.amp.GradScaler, "unscale_"))
_FUNCTIONS = (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_)


def attach(patches: Patches) -> None:
    """Time them. Classes that have methods of their own are seen when these call torch's."""
    for owner, name in _METHODS:
        patches.set(owner, name, _watched(getattr(owner, name)))
    for function in _FUNCTIONS:
        patches.enter(function, _watched)


def _watched(original: Any) -> Any:
    """Time the outermost call: inside a forward, a backward or another of these it is part of that."""
    is_compiling, name = torch.compiler.is_compiling, original.__name__

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        segment = recorder.main
        if is_compiling() or segment is None or inside.depth or dynamo_follows():
            return original(*args, **kwargs)
        with Span(segment, Stage.GRADIENTS, segment.name_id(name)):
            inside.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                inside.depth -= 1

    hide_from_dynamo(skip_in_warnings(call))
    return call
