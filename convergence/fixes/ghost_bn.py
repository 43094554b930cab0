"""Ghost batch norm as modules, and converted from a model's batch norm (Hoffer, Hubara, Soudry 2017, arXiv 1705.08741, algorithm 1)."""

from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase

from feedline.convergence.fix import Fix, Training
from feedline.convergence.ghosts import ghost_sizes, normalise

__all__ = ["FIX", "GhostBatchNorm1d", "GhostBatchNorm2d", "GhostBatchNorm3d", "convert_ghost_batchnorm"]


M = TypeVar("M", bound=nn.Module)


class _Ghosts(_BatchNorm):
    """What the three modules share: in training each ghost is normalised by itself, and is one batch for the running statistics."""

    def __init__(self, num_features: int, ghost: int = 32, **kwargs: Any) -> None:
        super().__init__(num_features, **kwargs)
        self.ghost = checked(ghost)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or len(input) <= self.ghost:
            return super().forward(input)
        values = input[0, 0].numel()
        if self.ghost * values == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got ghosts of 1 sample from an input of shape {list(input.shape)}"
            )
        sizes = ghost_sizes(len(input), self.ghost, values)
        if len(sizes) == 1:
            return super().forward(input)
        like = next((each for each in (self.weight, self.running_mean) if each is not None), input)
        out, moments = normalise(input, self.weight, self.bias, sizes, self.eps, like.dtype)
        if self.track_running_stats:
            self._remember(moments)
        return out

    @torch.no_grad()
    def _remember(self, moments: torch.Tensor) -> None:
        """Take all ghosts into the running statistics as one after the other would; ``moments``: float [2, ghosts, channels]."""
        ghosts = moments.shape[1]
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(ghosts)
        if self.running_mean is None or self.running_var is None:
            return
        if self.momentum is not None:
            share, left = self.momentum, (1 - self.momentum) ** ghosts
            later = torch.logspace(ghosts - 1, 0, ghosts, base=1 - self.momentum, dtype=moments.dtype, device=moments.device)
            moments = later[:, None] * moments  # no matrix product: TF32 would round it
        elif self.num_batches_tracked is not None:  # the mean over all of them
            share = 1 / float(self.num_batches_tracked)
            left = 1 - ghosts * share
        else:
            return
        for running, found in zip((self.running_mean, self.running_var), moments.sum(1), strict=True):
            running.mul_(left).add_(found, alpha=share)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, ghost={self.ghost}"


class GhostBatchNorm1d(_Ghosts, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` over ghosts of ``ghost`` samples.

    In training the result, the gradients and the running statistics are those of a loop of batch norm over
    ``x.split(ghost)``; the last ghost may be smaller. For inference it *is* batch norm.

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


_GHOSTS: dict[type, type] = {nn.BatchNorm1d: GhostBatchNorm1d, nn.BatchNorm2d: GhostBatchNorm2d, nn.BatchNorm3d: GhostBatchNorm3d}


def convert_ghost_batchnorm(model: M, ghost: int = 32) -> M:
    """Turn every batch norm of a model into a ghost batch norm, in place.

    The modules themselves stay the same objects (they change their class), and with them parameters, buffers, hooks and the keys of the
    state dict: it can be done before or after the optimizer is made, and inside DistributedDataParallel. Converting again changes
    the size.

    Args:
        ghost: samples of a ghost, at least 1; the batch that the training was tuned for is what to begin with.

    Returns:
        The model.

    Raises:
        ValueError: no batch norm in it, or one whose statistics cannot be those of a ghost. The model is as it was.
    """
    checked(ghost)
    found: list[tuple[str, Any]] = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no batch norm layers to convert")
    for name, module in found:
        if type(module) not in _GHOSTS and not isinstance(module, _Ghosts):
            raise ValueError(f"{name or 'the model'} is {_why_not(module)}")
    for _, module in found:
        module.__class__ = _GHOSTS.get(type(module), type(module))
        module.ghost = ghost
    return model


def checked(ghost: int) -> int:
    """The size of a ghost, after a check."""
    if not isinstance(ghost, int) or ghost < 1:
        raise ValueError(f"a ghost cannot have {ghost!r} samples: expected a whole number of at least 1")
    return ghost


def _why_not(module: nn.Module) -> str:
    if isinstance(module, nn.SyncBatchNorm):
        return "a SyncBatchNorm, which takes its statistics over all ranks: the opposite of a ghost. Leave out convert_sync_batchnorm"
    if isinstance(module, _LazyNormBase):
        return f"a {type(module).__name__} that has seen no batch yet: run one through the model first"
    return f"a {type(module).__name__}, which has a forward of its own: use GhostBatchNorm in its place"


_VALUE = "32 (samples of a ghost)"


def parse(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a ghost batch size: expected {_VALUE}")
    return int(text)


def lines(ghost: int) -> str:
    return f"from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm\n\nconvert_ghost_batchnorm(model, ghost={ghost})"


def attach(ghost: int, training: Training) -> None:
    def convert(model: torch.nn.Module) -> None:
        convert_ghost_batchnorm(model, ghost)

    training.model(convert)


FIX = Fix(
    name="ghost_bn",
    value=_VALUE,
    summary="batch norm over parts of the batch, so that a large batch keeps the statistics of a small one",
    parse=parse,
    lines=lines,
    attach=attach,
)
