"""Averages over ranks the tensors that torch's averagers leave out."""

from collections.abc import Sequence

import torch
from torch import nn


def to_average(model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    """Floating-point buffers of a model (running statistics), and an optimizer's state that has its parameter's shape (momentum).

    The order is that of the model and of the parameters, so it is the same on every rank that trains the same of them.
    """
    found = [] if model is None else [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    for group in [] if optimizer is None else optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})  # type: ignore[union-attr]
            found += [each for _, each in sorted(state.items()) if isinstance(each, torch.Tensor) and each.shape == parameter.shape]
    return found


@torch.no_grad()
def average(tensors: Sequence[torch.Tensor], group: "torch.distributed.ProcessGroup | None" = None) -> None:
    """Set tensors to their mean over the ranks of a group, in place, with one all-reduce for each dtype.

    Every rank of the group has to come here, with tensors of the same shapes.
    """
    for dtype in sorted({each.dtype for each in tensors}, key=str):
        some = [each for each in tensors if each.dtype == dtype]
        flat = torch.cat([each.reshape(-1) for each in some])
        flat /= torch.distributed.get_world_size(group)
        torch.distributed.all_reduce(flat, group=group)
        for each, mean in zip(some, flat.split([each.numel() for each in some]), strict=True):
            each.copy_(mean.view(each.shape))
