"""Local SGD and post-local SGD (Lin et al. 2018, arXiv 1808.07217).

On torch's optimizer and averagers. It is imported on first use only, because
torch.distributed.optim takes a while.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import (
    ModelAverager,
    PeriodicModelAverager,
)
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

# it compiles parts of itself in a way that torch itself calls deprecated
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import PostLocalSGDOptimizer


def _to_average(
    model: nn.Module | None, optimizer: torch.optim.Optimizer | None
) -> list[torch.Tensor]:
    """List a model's floating-point buffers, and an optimizer's state of its parameters' shapes.

    These are running statistics and momentum. The order is that of the model and of the parameters,
    so it is the same on every rank that trains the same of them.
    """
    tensors = (
        []
        if model is None
        else [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    )
    for group in [] if optimizer is None else optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})  # type: ignore[union-attr]
            tensors += [
                each
                for _, each in sorted(state.items())
                if isinstance(each, torch.Tensor) and each.shape == parameter.shape
            ]
    return tensors


@torch.no_grad()
def _average(
    tensors: Sequence[torch.Tensor], group: "torch.distributed.ProcessGroup | None" = None
) -> None:
    """Set tensors to their mean over the ranks of a group, in place.

    There is one all-reduce for each dtype. Every rank of the group has to come here, with tensors
    of the same shapes.
    """
    for dtype in sorted({each.dtype for each in tensors}, key=str):
        same_dtype = [each for each in tensors if each.dtype == dtype]
        flat = torch.cat([each.reshape(-1) for each in same_dtype])
        flat /= torch.distributed.get_world_size(group)
        torch.distributed.all_reduce(flat, group=group)
        for each, mean in zip(
            same_dtype, flat.split([each.numel() for each in same_dtype]), strict=True
        ):
            each.copy_(mean.view(each.shape))


class LocalSgd(PostLocalSGDOptimizer):
    """torch's PostLocalSGDOptimizer with what it lacks.

    That is the mean of running statistics and of momentum, step hooks, a closure, and a checkpoint
    after which its groups are still those of the optimizer inside.

    Args:
        optim: the optimizer inside.
        averager: torch's PeriodicModelAverager or HierarchicalModelAverager.
        model: whose floating-point buffers are averaged with the parameters; None: none are.
        momentum: average the optimizer's state of each parameter too. Twice (SGD) or three times
            (Adam) the bytes of an exchange.
        gradients: state of the communication hook of a DistributedDataParallel model; kept in step
            with the averager.

    Raises:
        ValueError: an averager of another kind, which does not say when it averages.
    """

    def __init__(
        self,
        optim: torch.optim.Optimizer,
        averager: ModelAverager,
        model: nn.Module | None = None,
        momentum: bool = False,
        gradients: PostLocalSGDState | None = None,
    ) -> None:
        """Check the averager, and share the groups of the optimizer inside."""
        if not isinstance(averager, PeriodicModelAverager | HierarchicalModelAverager):
            raise ValueError(
                f"unknown averager {type(averager).__name__}: use torch's periodic or "
                f"hierarchical one"
            )
        super().__init__(optim, averager)
        self.defaults = optim.defaults
        self.model, self.momentum, self.gradients = model, momentum, gradients
        self._before: OrderedDict[int, Callable[..., object]] = OrderedDict()
        self._behind: OrderedDict[int, Callable[..., object]] = OrderedDict()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one update of this rank, and exchange weights if it is due."""
        for hook in [*self._before.values()]:
            hook(self, (), {})
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        group = self._exchanges_now()
        if group is not None:
            tensors = _to_average(self.model, self.optim if self.momentum else None)
            _average(tensors, group)
        self.averager.average_parameters(self.param_groups)
        self._keep_step()
        for hook in [*self._behind.values()]:
            hook(self, (), {})
        return loss

    def _exchanges_now(self) -> "torch.distributed.ProcessGroup | None":
        averager: Any = self.averager
        since = averager.step - averager.warmup_steps
        if since < 0:
            return None
        if isinstance(averager, HierarchicalModelAverager):
            return averager._find_process_group()
        return averager.process_group if since % averager.period == 0 else None

    def _keep_step(self) -> None:
        if self.gradients is not None:
            self.gradients.iter = self.averager.step

    def register_step_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call a hook before each update with (optimizer, args, kwargs), as torch does."""
        return _registered(self._before, hook)

    def register_step_post_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call a hook after each update and its exchange."""
        return _registered(self._behind, hook)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; the groups stay those of the optimizer inside."""
        super().load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        self._keep_step()


def _registered(
    hooks: "OrderedDict[int, Callable[..., object]]", hook: Callable[..., object]
) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def local_sgd(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    period: int,
    after: int = 0,
    buffers: bool = True,
    momentum: bool = False,
) -> LocalSgd:
    """Set up local SGD (``after=0``) or post-local SGD of a model on all ranks.

    Args:
        model: a DistributedDataParallel made with ``broadcast_buffers=False``, whose exchange of
            gradients stops after ``after`` updates; or a model that nothing exchanges: it gets rank
            0's parameters now.
        optimizer: of its parameters.
        period: updates between two exchanges, H in the paper, at least 1.
        after: updates with an exchange of gradients before, 0 or more; needs
            DistributedDataParallel.
        buffers: average floating-point buffers too.
        momentum: average the optimizer's momentum too.

    Returns:
        The optimizer to use in place of the one given.

    Raises:
        ValueError: no process group, or a model for which that cannot be done.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ValueError("local SGD needs ranks: call torch.distributed.init_process_group first")
    gradients = None
    if isinstance(model, DistributedDataParallel):
        if model.broadcast_buffers and [*model.buffers()]:
            raise ValueError(
                "DistributedDataParallel sends rank 0's buffers in every forward: make it with "
                "broadcast_buffers=False"
            )
        gradients = PostLocalSGDState(None, None, after, post_local_gradient_allreduce=False)
        model.register_comm_hook(gradients, post_localSGD_hook)
    elif after:
        raise ValueError(
            "the first updates exchange gradients: wrap the model in DistributedDataParallel, or "
            "set after=0"
        )
    else:
        for tensor in (*model.parameters(), *model.buffers()):
            torch.distributed.broadcast(tensor.detach(), 0)
    averager = PeriodicModelAverager(period, after)
    return LocalSgd(optimizer, averager, model if buffers else None, momentum, gradients)
