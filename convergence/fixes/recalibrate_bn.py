"""Sets the running statistics of batch norm to those of some batches."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from feedline.convergence.fix import Fix

__all__ = ["FIX", "recalibrate"]


_VALUE = "50 (batches)"


class _ChannelMoments:
    """Mean and summed squared deviation per channel, in float64.

    They are merged batch by batch (Chan, Golub, LeVeque 1983).

    Attributes:
        count: float64 [], values per channel.
        mean: float64 [channels].
        squares: float64 [channels].
    """

    def __init__(self, channels: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean, self.squares = torch.zeros(2, channels, dtype=torch.float64, device=device)

    def add(self, x: torch.Tensor) -> None:
        """Add a batch, [batch, channels, ...]."""
        x = x.detach()
        exact = x if x.dtype == torch.float64 else x.float()
        variance, mean = torch.var_mean(exact, [0, *range(2, x.ndim)], correction=0)
        count = x.numel() // x.shape[1]
        self.merge(
            torch.tensor(float(count), dtype=torch.float64, device=x.device),
            mean.double(),
            variance.double() * count,
        )

    def merge(self, count: torch.Tensor, mean: torch.Tensor, squares: torch.Tensor) -> None:
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart**2 * (self.count * count / total)
        self.count = total

    def over_ranks(self) -> "_ChannelMoments":
        """Return the moments of all ranks together; every rank must call it."""
        mine = torch.cat([self.count[None], self.mean, self.squares])
        ranks = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(ranks, mine)
        total = _ChannelMoments(len(self.mean), mine.device)
        for theirs in ranks:
            if theirs[0] > 0:
                total.merge(theirs[0], *theirs[1:].chunk(2))
        return total


def _forward_batch(model: nn.Module, batch: Any) -> None:
    """Call most models: with a dictionary by name, else with the batch or its first part."""
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
    if isinstance(batch, Mapping):
        model(
            **{
                key: value.to(device) if isinstance(value, torch.Tensor) else value
                for key, value in batch.items()
            }
        )
    else:
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        model(inputs.to(device))


def recalibrate(
    model: nn.Module,
    batches: Iterable[Any],
    forward: Callable[[nn.Module, Any], object] = _forward_batch,
    all_ranks: bool = False,
) -> int:
    """Set the running statistics of every batch norm to those over all samples of some batches.

    While a batch goes through, batch norm uses the batch's own statistics, as in training, and
    everything else (dropout) is as in inference. The variance is that of all values together;
    `torch.optim.swa_utils.update_bn` averages the variances of batches, which leaves out how their
    means differ and gives a small last batch the weight of a full one.

    Train and eval modes, momentum, ``num_batches_tracked`` and the random states of this process
    are afterwards what they were. An error leaves the statistics as they were too.

    Args:
        model: its DistributedDataParallel and torch.compile wrappers are stepped around.
        batches: as many as are to count, of the batch size and augmentation of the training;
            ``itertools.islice(loader, 50)`` for 50.
        forward: how a batch goes through the model; without it a dictionary by name, else the batch
            or the first of its parts.
        all_ranks: take the batches of all ranks together. Every rank has to call it.

    Returns:
        Batches seen.

    Raises:
        ValueError: no batch, no batch norm with running statistics, a layer that no batch reached,
            or values that are not finite.
    """
    model = _inside(model)
    norms = {
        name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)
    }
    layers: dict[str, Any] = {
        name: module for name, module in norms.items() if module.running_mean is not None
    }
    if not layers:
        raise ValueError(f"{type(model).__name__} has no batch norm with running statistics")
    moments = {
        name: _ChannelMoments(layer.num_features, layer.running_mean.device)
        for name, layer in layers.items()
    }
    seen = 0
    with (
        _as_in_training(model, layers.values()),
        _watched(layers, moments),
        _random_states_kept(),
        torch.no_grad(),
    ):
        for batch in batches:
            forward(model, batch)
            seen += 1
    if all_ranks:
        moments = {name: each.over_ranks() for name, each in moments.items()}
    for name, each in moments.items():
        _check(name, each, seen)
    for name, layer in layers.items():
        layer.running_mean.copy_(moments[name].mean)
        layer.running_var.copy_(moments[name].squares / (moments[name].count - 1))
    return seen


def _inside(model: Any) -> nn.Module:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return _inside(model.module)
    return _inside(model._orig_mod) if hasattr(model, "_orig_mod") else model


def _check(name: str, moments: _ChannelMoments, seen: int) -> None:
    if moments.count < 2:
        raise ValueError(
            f"{name or 'the model'}: {seen} batches gave {int(moments.count)} values per channel; "
            f"a variance needs 2"
        )
    if not (moments.mean.isfinite().all() and moments.squares.isfinite().all()):
        raise ValueError(
            f"{name or 'the model'}: its inputs hold NaN or infinity; the statistics were left "
            f"unchanged"
        )


@contextmanager
def _as_in_training(model: nn.Module, layers: Iterable[Any]) -> Iterator[None]:
    """Run batch norm as in training but without a memory, and the rest as in inference.

    Nothing is compiled meanwhile, which would not see the hooks.
    """
    modes = [(module, module.training) for module in model.modules()]
    remembers = [(layer, layer.track_running_stats) for layer in layers]
    model.eval()
    for layer, _ in remembers:
        layer.training, layer.track_running_stats = True, False
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, training in modes:
            module.training = training
        for layer, before in remembers:
            layer.track_running_stats = before


@contextmanager
def _watched(layers: dict[str, Any], moments: dict[str, _ChannelMoments]) -> Iterator[None]:
    def look(
        moments_of_layer: _ChannelMoments,
    ) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _, inputs: moments_of_layer.add(inputs[0])

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_pre_hook(look(moments[name])).remove)
        yield


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Keep random states: a loader draws a seed, and transforms draw what they need."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _parse(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of batches: expected {_VALUE}")
    return int(text)


def _lines(batches: int) -> str:
    return (
        "import itertools\n\n"
        "from feedline.convergence.fixes.recalibrate_bn import recalibrate\n\n"
        f"recalibrate(model, itertools.islice(loader, {batches}))  # before each evaluation, and "
        f"before the model is saved"
    )


FIX = Fix(
    name="recalibrate_bn",
    value=_VALUE,
    summary="batch norm's running statistics, recomputed exactly over some training batches",
    parse=_parse,
    lines=_lines,
)
