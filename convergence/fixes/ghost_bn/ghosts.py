"""Normalises the ghosts of a batch, each with its own statistics, as ``torch.cat([batch_norm(part) for part in x.split(ghost)])`` does.

A ghost is small or large against what calling an operation costs. Small ones are folded into the channels, so that one call of batch norm
does all of them: two copies of the batch, and no loop. Large ones are taken one by one, but written into one output, and with one node in
the autograd graph: the copies would cost more than the calls.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

#: Elements of a ghost below which folding is faster on a CPU (benchmarks/ghost_batchnorm.py).
FOLDED_BELOW = 1 << 14


def ghost_sizes(batch: int, ghost: int, values: int) -> list[int]:
    """Samples of each ghost: ``ghost`` each, the last one what is left over.

    A last ghost of a single value per channel has no variance: it goes into the one before.

    Args:
        values: of one channel in one sample.
    """
    sizes = [ghost] * (batch // ghost) + [batch % ghost] * (batch % ghost > 0)
    if len(sizes) > 1 and sizes[-1] * values == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def normalise(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, sizes: Sequence[int], eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise each ghost.

    Args:
        x: [batch, channels, ...].
        weight, bias: [channels], or None.
        sizes: samples of each ghost; their sum is the batch.
        dtype: of the statistics.

    Returns:
        The batch, and float [2, ghosts, channels], the means and unbiased variances, which are no part of the graph.
    """
    one_by_one = x.device.type == "cpu" and x.numel() >= FOLDED_BELOW * len(sizes) and not torch.compiler.is_compiling()
    if one_by_one:
        return OneByOne.apply(x, weight, bias, sizes, eps, dtype)[:2]
    out, moments = _folded(x, weight, bias, sizes, eps, dtype)
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if channels_last and x.is_contiguous(memory_format=channels_last):
        out = out.contiguous(memory_format=channels_last)
    return out, moments


def _folded(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, sizes: Sequence[int], eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    if sizes[0] != sizes[-1]:
        ends = [(x[: -sizes[-1]], sizes[:-1]), (x[-sizes[-1] :], sizes[-1:])]
        outs, of_ends = zip(*(_folded(part, weight, bias, some, eps, dtype) for part, some in ends), strict=True)
        return torch.cat(outs), torch.cat(of_ends, 1)
    ghosts, channels = len(sizes), x.shape[1]
    moments = torch.zeros(2, ghosts * channels, dtype=dtype, device=x.device)
    weight, bias = (None if each is None else each.repeat(ghosts) for each in (weight, bias))
    folded = x.unflatten(0, (ghosts, sizes[0])).transpose(0, 1).flatten(1, 2)  # [ghost, ghosts * channels, ...]
    out = F.batch_norm(folded, moments[0], moments[1], weight, bias, training=True, momentum=1.0, eps=eps)
    return out.unflatten(1, (ghosts, channels)).transpose(0, 1).flatten(0, 1), moments.view(2, ghosts, channels)


class OneByOne(torch.autograd.Function):
    """Batch norm of each ghost, written into one output."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, sizes: Sequence[int], eps: float, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        out, ghosts = torch.empty_like(x), len(sizes)
        moments, saved = (torch.zeros(2 * ghosts, x.shape[1], dtype=dtype, device=x.device) for _ in range(2))
        of_ghost, of_saved = moments.unbind(), saved.unbind()  # first all means, then all variances or scales
        for number, (part, into) in enumerate(zip(x.split(sizes), out.split(sizes), strict=True)):
            mean, variance = of_ghost[number], of_ghost[ghosts + number]
            found = (into, of_saved[number], of_saved[ghosts + number])
            # momentum 1: the "running" statistics become those of this ghost
            torch.native_batch_norm(part, weight, bias, mean, variance, True, 1.0, eps, out=found)
        return out, moments.view(2, ghosts, -1), saved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        x, weight, bias, ctx.sizes, ctx.eps, _ = inputs
        _, moments, saved = output
        ctx.mark_non_differentiable(moments, saved)
        ctx.save_for_backward(x, weight, saved)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, saved = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        twice = torch.is_grad_enabled()  # the gradient will be differentiated, and writing into a tensor cannot be
        into = torch.empty_like(x) if wanted[0] and not twice else None
        places = [None] * len(ctx.sizes) if into is None else into.split(ctx.sizes)
        parts = zip(grad.split(ctx.sizes), x.split(ctx.sizes), *saved.view(2, len(ctx.sizes), -1).unbind(), places, strict=True)
        found = []
        for of_out, part, mean, scale, place in parts:
            found.append(torch.ops.aten.native_batch_norm_backward(of_out, part, weight, None, None, mean, scale, True, ctx.eps, wanted))
            if place is not None:  # while it is still in the cache
                place.copy_(found[-1][0])
                found[-1] = (None, *found[-1][1:])
        of_x, of_weight, of_bias = zip(*found, strict=True)
        return (
            torch.cat(of_x) if wanted[0] and twice else into,
            torch.stack(of_weight).sum(0) if wanted[1] else None,
            torch.stack(of_bias).sum(0) if wanted[2] else None,
            None,
            None,
            None,
        )
