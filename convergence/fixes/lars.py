"""LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888, equations 4 to 6).

Also what LARC, LAMB and NovoGrad share with it: which tensors adapt, their norms (whole also where
they are sharded), and one step over many.

A tensor of at most one dimension (bias, normalisation weight) has no trust ratio and no weight
decay. ``exclude`` says otherwise for single tensors, the group key ``"excluded"`` (True or False)
for all tensors of a parameter group.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from feedline.convergence.fix import at_most_one_dimension, optimizer_fix

# elements: what lies between the steps of one update stays in a core's cache
# (benchmarks/optimizer_speed.py)
_CPU_BATCH_ELEMENTS = 1 << 18

LearningRate = float | Tensor
# torch.distributed.tensor: the DeviceMesh and a Placement for each of its dimensions
_Sharding = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True)
class TensorBatch:
    """Tensors of one group that are updated together.

    They have the same device, dtype and sharding, and are all adapted or all excluded.

    Attributes:
        params: list of n tensors; of sharded ones the part on this rank.
        grads: likewise.
        state: by name, n tensors each, of the parameters' shapes (this rank's part) or of none.
        adapted: they have trust ratios and weight decay.
        sharding: None: each rank has them whole.
    """

    params: list[Tensor]
    grads: list[Tensor]
    state: dict[str, list[Tensor]]
    adapted: bool
    sharding: _Sharding | None

    def norms(self, *lists: list[Tensor]) -> tuple[Tensor, ...]:
        """Return L2 norms of the whole tensors, [n] for each list, at least float32.

        If sharded, one all-reduce brings all of them.
        """
        tensors = [tensor for each in lists for tensor in each]
        norms = torch.stack(torch._foreach_norm(tensors, 2, self.scalar_dtype))
        if self.sharding is not None:
            norms = _over_ranks(norms.double().square(), self.sharding).sqrt().to(self.scalar_dtype)
        return norms.split(len(self.params))

    @property
    def scalar_dtype(self) -> torch.dtype:
        """The dtype of norms, ratios and rates.

        It is float32 where half precision would round or overflow.
        """
        return torch.promote_types(self.params[0].dtype, torch.float32)

    def rate(self, lr: LearningRate) -> LearningRate:
        """Return a learning rate, if it is a tensor on this batch's device."""
        return (
            lr.reshape(()).to(self.params[0].device, non_blocking=True)
            if isinstance(lr, Tensor)
            else lr
        )


def add_scaled(into: list[Tensor], what: list[Tensor], scale: LearningRate) -> None:
    """Add ``scale * what`` to ``into``, in place.

    Args:
        into: n tensors.
        what: n tensors.
        scale: a number, a tensor of no dimension, or a tensor [n] with one for each.
    """
    if not isinstance(scale, Tensor):
        torch._foreach_add_(into, what, alpha=scale)
        return
    scales = list(scale.unbind()) if scale.ndim else [scale] * len(into)
    torch._foreach_addcmul_(into, what, scales)


def unless_zero(value: Tensor, otherwise: LearningRate, *norms: Tensor) -> Tensor:
    """Return ``value``, or ``otherwise`` if one of the norms is zero; NaN stays NaN."""
    return torch.where(torch.stack(norms).eq(0).any(0), otherwise, value)


def _over_ranks(partial: Tensor, sharding: _Sharding) -> Tensor:
    """Sum over the ranks that hold parts of the same tensors."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    mesh, placements = sharding
    summed = [Replicate() if placement.is_replicate() else Partial() for placement in placements]
    return DTensor.from_local(partial, mesh, summed, run_check=False).full_tensor()


class LayerwiseOptimizer(torch.optim.Optimizer):
    """An optimizer whose rates depend on norms of whole tensors.

    A subclass defines its state, its ranges and the update. ``p.grad`` is never changed, and
    nothing waits for the device: where a choice depends on values, tensors choose. One tensor's
    update needs no other tensor's, so ``foreach=False`` is the same arithmetic, a tensor at a time,
    with less memory for what is between.

    Attributes:
        ranges: of the numbers in a parameter group: at least the first, below the second.
        moments: state of the parameters' shapes, zeros at first.
        scalars: state of no dimension, with its first value.
    """

    ranges: dict[str, tuple[float, float]] = {}
    moments: tuple[str, ...] = ()
    scalars: dict[str, float] = {}

    def __init__(
        self, params: Any, defaults: dict[str, Any], exclude: Callable[[Tensor], bool]
    ) -> None:
        """Add ``excluded`` to the defaults of the groups."""
        self._exclude = exclude
        super().__init__(params, {**defaults, "excluded": None})

    def __getstate__(self) -> dict[str, Any]:
        """Return torch's state, and which tensors are excluded."""
        return {**super().__getstate__(), "_exclude": self._exclude}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state; groups of an older one get the defaults."""
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch does, but keep scalars as they are.

        torch would round what is kept in float32 to the parameters' half precision, and leave
        ``step`` on another device.
        """
        super().load_state_dict(state_dict)
        saved = (index for group in state_dict["param_groups"] for index in group["params"])
        for index, param in zip(
            saved, (param for group in self.param_groups for param in group["params"])
        ):
            for name in self.scalars if index in state_dict["state"] else ():
                value = state_dict["state"][index][name].detach().clone()
                self.state[param][name] = value.to(
                    device=param.device, dtype=torch.promote_types(param.dtype, torch.float32)
                )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as torch does, after a check of its numbers.

        Raises:
            ValueError: a number is out of its range, or a parameter is complex.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check(group)
        except ValueError:
            self.param_groups.pop()
            raise

    def _check(self, group: dict[str, Any]) -> None:
        if isinstance(group["lr"], Tensor) and group["lr"].numel() != 1:
            raise ValueError(f"lr as a tensor must have one element, not {group['lr'].numel()}")
        for name, (low, below) in self.ranges.items():
            values = group[name] if isinstance(group[name], tuple | list) else [group[name]]
            if name == "betas" and len(values) != 2:
                raise ValueError(f"betas must be two numbers, not {group[name]}")
            if not all(low <= value < below for value in values):
                raise ValueError(
                    f"{name} must be at least "
                    f"{low:g}{f' and below {below:g}' if below < math.inf else ''}, not "
                    f"{group[name]}"
                )
        for index, param in enumerate(group["params"]):
            if param.is_complex():
                raise ValueError(
                    f"parameter {index} is complex, which {type(self).__name__} cannot take: pass "
                    f"torch.view_as_real(parameter)"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: recomputes the loss and returns it.

        Raises:
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            for batch in self._batches(index, group):
                if group["maximize"]:
                    batch = replace(batch, grads=list(torch._foreach_neg(batch.grads)))
                self._update(batch, group)
        return loss

    def _update(self, batch: TensorBatch, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _batches(self, index: int, group: dict[str, Any]) -> Iterator[TensorBatch]:
        batches: dict[Any, TensorBatch] = {}
        for number, param in enumerate(group["params"]):
            if param.grad is None:
                continue
            if param.grad.layout != torch.strided:
                raise RuntimeError(
                    f"the gradient of parameter {number} in group {index} is sparse, which "
                    f"{type(self).__name__} cannot take, "
                    "because norms are of whole tensors: make the embedding with sparse=False, or "
                    "give it to torch.optim.SparseAdam"
                )
            excluded = self._exclude(param) if group["excluded"] is None else group["excluded"]
            sharding = (
                (param.device_mesh, tuple(param.placements))
                if hasattr(param, "placements")
                else None
            )
            key = (
                param.device,
                param.dtype,
                sharding,
                excluded,
                None if group["foreach"] else number,
            )
            if key not in batches:
                state: dict[str, list[Tensor]] = {
                    name: [] for name in (*self.moments, *self.scalars)
                }
                batches[key] = TensorBatch([], [], state, not excluded, sharding)
            batch = batches[key]
            self._put(param, batch)
            if (
                sharding is None
                and param.device.type == "cpu"
                and sum(each.numel() for each in batch.params) > _CPU_BATCH_ELEMENTS
            ):
                full = (*key, number)  # the next tensor begins another
                batches[full] = batches.pop(key)
        yield from batches.values()

    def _put(self, param: Any, batch: TensorBatch) -> None:
        state, grad = self.state[param], param.grad
        if not state:
            state.update(
                {
                    name: torch.zeros_like(param, memory_format=torch.preserve_format)
                    for name in self.moments
                }
            )
            scalar = torch.promote_types(param.dtype, torch.float32)
            state.update(
                {
                    name: torch.full((), value, dtype=scalar, device=param.device)
                    for name, value in self.scalars.items()
                }
            )
        moments = [state[name] for name in self.moments]
        if batch.sharding is not None:
            if tuple(grad.placements) != tuple(param.placements):
                grad = grad.redistribute(param.device_mesh, param.placements)
            param, grad, *moments = (tensor.to_local() for tensor in (param, grad, *moments))
        batch.params.append(param)
        batch.grads.append(grad)
        for name, tensor in zip(self.moments, moments):
            batch.state[name].append(tensor)
        for name in self.scalars:
            batch.state[name].append(state[name])


class Lars(LayerwiseOptimizer):
    """SGD with momentum whose rate adapts tensor by tensor.

    It is ``lr * trust_coefficient * |w| / (|g| + weight_decay * |w|)``, inside the momentum, as in
    the paper: ``v = momentum * v + rate * (g + weight_decay * w); w = w - v``.

    Args:
        params: as for any torch optimizer. A group may say ``"excluded": True`` or ``False`` for
            all its tensors.
        lr: the global rate; a number or a tensor of one element (which does not make torch.compile
            recompile).
        momentum: 0 to 1.
        weight_decay: as in the paper's ResNet-50, part of the gradient; 0 adapts all the same.
        trust_coefficient: the paper's eta.
        excluded_lr_scale: excluded tensors, and tensors whose weights or gradient are all zero,
            move like in SGD at lr times this.
        exclude: which tensors have neither ratio nor decay.
        maximize: climb, in place of descending.
        foreach: all tensors at once; False: one at a time, with less memory.

    Raises:
        ValueError: a number is out of its range, or a parameter is complex.
    """

    ranges = {
        "lr": (0, math.inf),
        "momentum": (0, 1),
        "weight_decay": (0, math.inf),
        "trust_coefficient": (0, math.inf),
    }
    ranges |= {"excluded_lr_scale": (0, math.inf)}
    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Any,
        lr: LearningRate,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust_coefficient: float = 0.001,
        excluded_lr_scale: float = 0.1,
        *,
        exclude: Callable[[Tensor], bool] = at_most_one_dimension,
        maximize: bool = False,
        foreach: bool = True,
    ) -> None:
        """Pass the numbers on as defaults of the groups."""
        numbers = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
        }
        super().__init__(
            params,
            {
                **numbers,
                "excluded_lr_scale": excluded_lr_scale,
                "maximize": maximize,
                "foreach": foreach,
            },
            exclude,
        )

    def _update(self, batch: TensorBatch, group: dict[str, Any]) -> None:
        velocity = batch.state["momentum_buffer"]
        lr = batch.rate(group["lr"])
        decay = group["weight_decay"]
        grads, rate = batch.grads, lr * group["excluded_lr_scale"]
        if batch.adapted:
            weights, gradients = batch.norms(batch.params, grads)
            rate = self._adapted(weights, gradients, lr, rate, group)
            grads = list(torch._foreach_add(grads, batch.params, alpha=decay)) if decay else grads
        torch._foreach_mul_(velocity, group["momentum"])
        add_scaled(velocity, grads, rate)
        torch._foreach_sub_(batch.params, velocity)

    def _adapted(
        self,
        weights: Tensor,
        gradients: Tensor,
        lr: LearningRate,
        otherwise: LearningRate,
        group: dict[str, Any],
    ) -> Tensor:
        """Return the rates of all tensors, [n], from the norms of weights and gradients."""
        trusted = (
            lr
            * group["trust_coefficient"]
            * weights
            / (gradients + group["weight_decay"] * weights)
        )
        return unless_zero(trusted, otherwise, weights, gradients)


FIX = optimizer_fix(
    "lars",
    Lars,
    keys=("wd", "momentum", "trust", "excluded"),
    summary="SGD with a learning rate per layer, proportional to the norm of its weights over "
    "that of its gradient",
    control="lr_rule=linear,warmup=5ep",
)
