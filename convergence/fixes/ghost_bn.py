"""Ghost batch norm (Hoffer, Hubara, Soudry 2017, arXiv 1705.08741, algorithm 1).

Each ghost of a batch is normalised with its own statistics, as
``torch.cat([batch_norm(part) for part in x.split(ghost)])`` does.

A ghost is small or large against what calling an operation costs. On a CPU small ones are done
together, by operations on [ghosts, ghost, channels, ...], where torch's batch norm is slow. Large
ones are taken one by one, but written into one output, and with one node in the autograd graph:
they do not fit into the caches, so each further operation on all of them would cost as much again.
On a GPU, where dynamo compiles, and inside torch.func, they are folded into the channels, so that
one call of batch norm does all of them.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase

from feedline.convergence.fix import Fix, NothingToChange, TrainingHooks

#: Elements of a ghost below which all together are faster on a CPU (benchmarks/ghost_batchnorm.py).
TOGETHER_BELOW = 1 << 14
_VALUE = "32 (samples of a ghost)"


def _ghost_sizes(batch: int, ghost: int, values: int) -> list[int]:
    """Return the number of samples in each ghost: ``ghost``, and the rest in the last one.

    A last ghost of a single value per channel has no variance: it goes into the one before.

    Args:
        batch: samples.
        ghost: samples of a full ghost.
        values: of one channel in one sample.
    """
    sizes = [ghost] * (batch // ghost) + [batch % ghost] * (batch % ghost > 0)
    if len(sizes) > 1 and sizes[-1] * values == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def _normalise_ghosts(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    sizes: Sequence[int],
    eps: float,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise each ghost.

    Args:
        x: [batch, channels, ...].
        weight: [channels], or None.
        bias: [channels], or None.
        sizes: samples of each ghost; their sum is the batch.
        eps: added to the variance.
        dtype: of the statistics.

    Returns:
        The batch, and float [2, ghosts, channels], the means and unbiased variances, which are not
        part of the graph.
    """
    # torch.func transforms only functions with a setup_context, which the two below do without
    eager_cpu = (
        x.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )
    if eager_cpu and x.numel() >= TOGETHER_BELOW * len(sizes):
        return _OneByOne.apply(x, weight, bias, sizes, eps, dtype)
    if sizes[0] != sizes[-1]:
        ends = [(x[: -sizes[-1]], sizes[:-1]), (x[-sizes[-1] :], sizes[-1:])]
        outs, of_ends = zip(
            *(
                _normalise_ghosts(part, weight, bias, sizes_of_part, eps, dtype)
                for part, sizes_of_part in ends
            ),
            strict=True,
        )
        return torch.cat(outs), torch.cat(of_ends, 1)
    if eager_cpu:
        return _Together.apply(x, weight, bias, len(sizes), eps, dtype)
    return _folded(x, weight, bias, len(sizes), eps, dtype)


def _folded(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    ghosts: int,
    eps: float,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    channels = x.shape[1]
    moments = torch.zeros(2, ghosts * channels, dtype=dtype, device=x.device)
    weight, bias = (None if each is None else each.repeat(ghosts) for each in (weight, bias))
    # [ghost, ghosts * channels, ...]
    folded = x.unflatten(0, (ghosts, -1)).transpose(0, 1).flatten(1, 2)
    out = F.batch_norm(
        folded, moments[0], moments[1], weight, bias, training=True, momentum=1.0, eps=eps
    )
    out = out.unflatten(1, (ghosts, channels)).transpose(0, 1).flatten(0, 1)
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if channels_last and x.is_contiguous(memory_format=channels_last):
        out = out.contiguous(memory_format=channels_last)
    return out, moments.view(2, ghosts, channels)


class _Together(torch.autograd.Function):
    """Batch norm of equally large ghosts, in operations on all of them.

    Per-channel values have the shape [ghosts, 1, channels, 1, ...].
    """

    @staticmethod
    # with a setup_context of its own it would be 50 us slower: torch binds the arguments by
    # inspect.signature then
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        ghosts: int,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        parts = x.unflatten(0, (ghosts, -1))
        values = x.numel() // (ghosts * x.shape[1])
        mean = _over_ghosts(parts, dtype).div_(values)
        centred = parts - mean
        variance = _over_ghosts(centred * centred, dtype).div_(values)
        scale = (variance + eps).rsqrt_()
        out = centred.mul_(scale if weight is None else scale * _like_scale(weight, scale))
        if bias is not None:
            out += _like_scale(bias, scale)
        moments = torch.stack(
            [mean.view(ghosts, -1), variance.view(ghosts, -1).mul_(values / (values - 1))]
        )
        ctx.ghosts, ctx.eps, ctx.dtype = ghosts, eps, dtype
        ctx.mark_non_differentiable(moments)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return out.flatten(0, 1).to(x.dtype), moments

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # the gradient will be differentiated
            of = [each for each, want in zip((x, weight, bias), wanted, strict=True) if want]
            out = _folded(x, weight, bias, ctx.ghosts, ctx.eps, ctx.dtype)[0]
            gradients = iter(torch.autograd.grad(out, of, grad, create_graph=True))
            return *(next(gradients) if want else None for want in wanted), None, None, None
        parts, grads = x.unflatten(0, (ctx.ghosts, -1)), grad.unflatten(0, (ctx.ghosts, -1))
        into = parts - mean
        of_bias = _over_ghosts(grads, ctx.dtype)
        of_weight = _over_ghosts(grads * into, ctx.dtype).mul_(scale)
        if wanted[0]:
            values = x.numel() // scale.numel()
            into *= of_weight * scale / -values
            into += grads
            into -= of_bias / values
            into *= scale if weight is None else scale * _like_scale(weight, scale)
        return (
            into.flatten(0, 1).to(x.dtype) if wanted[0] else None,
            of_weight.sum(0).flatten() if wanted[1] else None,
            of_bias.sum(0).flatten() if wanted[2] else None,
            None,
            None,
            None,
        )


def _over_ghosts(parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sum over the samples of a ghost, which lie far apart, then over the values of one.

    That is faster than both at once.
    """
    sums = parts.sum(1, keepdim=True, dtype=dtype)
    return sums.sum(tuple(range(3, sums.ndim)), keepdim=True) if sums.ndim > 3 else sums


def _like_scale(of_channels: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return of_channels.view(scale.shape[1:])


class _OneByOne(torch.autograd.Function):
    """Batch norm of each ghost, written into one output."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        sizes: Sequence[int],
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, ghosts = torch.empty_like(x), len(sizes)
        moments, saved = (
            torch.zeros(2 * ghosts, x.shape[1], dtype=dtype, device=x.device) for _ in range(2)
        )
        # first all means, then all variances or scales
        of_ghost, of_saved = moments.unbind(), saved.unbind()
        for number, (part, into) in enumerate(zip(x.split(sizes), out.split(sizes), strict=True)):
            mean, variance = of_ghost[number], of_ghost[ghosts + number]
            outputs = (into, of_saved[number], of_saved[ghosts + number])
            # momentum 1: the "running" statistics become those of this ghost
            torch.native_batch_norm(part, weight, bias, mean, variance, True, 1.0, eps, out=outputs)
        moments = moments.view(2, ghosts, -1)
        ctx.sizes, ctx.eps = sizes, eps
        ctx.mark_non_differentiable(moments)
        ctx.save_for_backward(x, weight, saved)
        return out, moments

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, saved = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        # the gradient will be differentiated, and writing into a tensor cannot be
        twice = torch.is_grad_enabled()
        into = torch.empty_like(x) if wanted[0] and not twice else None
        places = [None] * len(ctx.sizes) if into is None else into.split(ctx.sizes)
        parts = zip(
            grad.split(ctx.sizes),
            x.split(ctx.sizes),
            *saved.view(2, len(ctx.sizes), -1).unbind(),
            places,
            strict=True,
        )
        gradients = []
        for of_out, part, mean, scale, place in parts:
            gradients.append(
                torch.ops.aten.native_batch_norm_backward(
                    of_out, part, weight, None, None, mean, scale, True, ctx.eps, wanted
                )
            )
            if place is not None:  # while it is still in the cache
                place.copy_(gradients[-1][0])
                gradients[-1] = (None, *gradients[-1][1:])
        of_x, of_weight, of_bias = zip(*gradients, strict=True)
        return (
            torch.cat(of_x) if wanted[0] and twice else into,
            torch.stack(of_weight).sum(0) if wanted[1] else None,
            torch.stack(of_bias).sum(0) if wanted[2] else None,
            None,
            None,
            None,
        )


_Model = TypeVar("_Model", bound=nn.Module)


class _Ghosts(_BatchNorm):
    """Common part of the three modules.

    In training each ghost is normalised by itself, and is one batch for the running statistics.
    """

    def __init__(self, num_features: int, ghost: int = 32, **kwargs: Any) -> None:
        super().__init__(num_features, **kwargs)
        self.ghost = _checked_size(ghost)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or len(input) <= self.ghost:
            return super().forward(input)
        values = input[0, 0].numel()
        if self.ghost * values == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got ghosts of 1 sample "
                f"from an input of shape {list(input.shape)}"
            )
        sizes = _ghost_sizes(len(input), self.ghost, values)
        if len(sizes) == 1:
            return super().forward(input)
        like = next((each for each in (self.weight, self.running_mean) if each is not None), input)
        out, moments = _normalise_ghosts(input, self.weight, self.bias, sizes, self.eps, like.dtype)
        if self.track_running_stats:
            self._remember(moments)
        return out

    @torch.no_grad()
    def _remember(self, moments: torch.Tensor) -> None:
        """Update the running statistics as one ghost after the other would.

        Args:
            moments: float [2, ghosts, channels].
        """
        ghosts = moments.shape[1]
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(ghosts)
        if self.running_mean is None or self.running_var is None:
            return
        if self.momentum is not None:
            share, left = self.momentum, (1 - self.momentum) ** ghosts
            later = torch.logspace(
                ghosts - 1,
                0,
                ghosts,
                base=1 - self.momentum,
                dtype=moments.dtype,
                device=moments.device,
            )
            moments = later[:, None] * moments  # no matrix product: TF32 would round it
        elif self.num_batches_tracked is not None:  # the mean over all of them
            share = 1 / float(self.num_batches_tracked)
            left = 1 - ghosts * share
        else:
            return
        for running, new in zip((self.running_mean, self.running_var), moments.sum(1), strict=True):
            running.mul_(left).add_(new, alpha=share)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, ghost={self.ghost}"


class GhostBatchNorm1d(_Ghosts, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` over ghosts of ``ghost`` samples.

    In training the result, the gradients and the running statistics are those of a loop of batch
    norm over ``x.split(ghost)``; the last ghost may be smaller. For inference it *is* batch norm.

    Args:
        num_features: channels.
        ghost: samples of a ghost, at least 1. A batch that is no larger is normalised as a whole.
        kwargs: of `torch.nn.BatchNorm1d`.

    Raises:
        ValueError: in forward, a ghost of one value per channel, as batch norm raises it.
    """


class GhostBatchNorm2d(_Ghosts, nn.BatchNorm2d):
    """As `GhostBatchNorm1d`, of [batch, channels, height, width]."""


class GhostBatchNorm3d(_Ghosts, nn.BatchNorm3d):
    """As `GhostBatchNorm1d`, of [batch, channels, depth, height, width]."""


_GHOSTS: dict[type, type] = {
    nn.BatchNorm1d: GhostBatchNorm1d,
    nn.BatchNorm2d: GhostBatchNorm2d,
    nn.BatchNorm3d: GhostBatchNorm3d,
}


def convert_ghost_batchnorm(model: _Model, ghost: int = 32) -> _Model:
    """Turn every batch norm of a model into a ghost batch norm, in place.

    The modules themselves stay the same objects (they change their class), and with them
    parameters, buffers, hooks and the keys of the state dict: it can be done before or after the
    optimizer is made, and inside DistributedDataParallel. Converting again changes the size.

    Args:
        model: any module.
        ghost: samples of a ghost, at least 1; begin with the batch that the training was tuned for.

    Returns:
        The model.

    Raises:
        NothingToChange: no batch norm in it.
        ValueError: one whose statistics cannot be those of a ghost. The model is as it was.
    """
    _checked_size(ghost)
    norms: list[tuple[str, Any]] = [
        (name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)
    ]
    if not norms:
        raise NothingToChange(f"{type(model).__name__} has no batch norm layers to convert")
    for name, module in norms:
        if type(module) not in _GHOSTS and not isinstance(module, _Ghosts):
            raise ValueError(f"{name or 'the model'} is {_why_not(module)}")
    for _, module in norms:
        module.__class__ = _GHOSTS.get(type(module), type(module))
        module.ghost = ghost
    return model


def _checked_size(ghost: int) -> int:
    """Return the size of a ghost, after a check."""
    if not isinstance(ghost, int) or ghost < 1:
        raise ValueError(
            f"a ghost cannot have {ghost!r} samples: expected a whole number of at least 1"
        )
    return ghost


def _why_not(module: nn.Module) -> str:
    if isinstance(module, nn.SyncBatchNorm):
        return (
            "a SyncBatchNorm, which takes its statistics over all ranks: the opposite of a "
            "ghost. Leave out convert_sync_batchnorm"
        )
    if isinstance(module, _LazyNormBase):
        return (
            f"a {type(module).__name__} that has seen no batch yet: run one through the model first"
        )
    return (
        f"a {type(module).__name__}, which has a forward of its own: use GhostBatchNorm in its "
        f"place"
    )


def _parse(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a ghost batch size: expected {_VALUE}")
    return int(text)


def _lines(ghost: int) -> str:
    return (
        f"from feedline.convergence.fixes.ghost_bn import "
        f"convert_ghost_batchnorm\n\nconvert_ghost_batchnorm(model, ghost={ghost})"
    )


def _attach(ghost: int, training: TrainingHooks) -> None:
    def convert(model: torch.nn.Module) -> None:
        convert_ghost_batchnorm(model, ghost)

    training.model(convert)


FIX = Fix(
    name="ghost_bn",
    value=_VALUE,
    summary="batch norm over parts of the batch, so that a large batch keeps the statistics of a "
    "small one",
    parse=_parse,
    lines=_lines,
    attach=_attach,
)
