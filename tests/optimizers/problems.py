"""Three small trainings in float64: where they start, and their loss."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Problem:
    """start: the parameters; loss: of parameters like them, at a step."""

    start: Callable[[], list[Tensor]]
    loss: Callable[[list[Tensor], int], Tensor]

    def gradients(self, weights: list[Tensor], step: int) -> list[Tensor]:
        with torch.enable_grad():
            leaves = [weight.detach().requires_grad_() for weight in weights]
            return list(torch.autograd.grad(self.loss(leaves, step), leaves))

    def parameters(self) -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(tensor) for tensor in self.start()]


def made(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _quadratic(weights: list[Tensor], step: int) -> Tensor:
    first, second = weights
    return (
        0.5 * (made(6, 4, seed=1) @ first - made(6, 3, seed=2 + step)).square().sum()
        + (first @ second).square().mean()
    )


def _logistic(weights: list[Tensor], step: int) -> Tensor:
    weight, bias = weights
    return functional.cross_entropy(
        made(12, 6, seed=3 + step) @ weight.T + bias, torch.arange(12) % 4
    )


def _convolution(weights: list[Tensor], step: int) -> Tensor:
    kernel, kernel_bias, gain, weight, bias = weights
    hidden = (
        functional.conv1d(made(8, 1, 10, seed=4 + step), kernel, kernel_bias, stride=2).relu()
        * gain[:, None]
    )
    return functional.cross_entropy(hidden.flatten(1) @ weight.T + bias, torch.arange(8) % 5)


PROBLEMS = {
    "quadratic": Problem(lambda: [made(4, 3, seed=10), made(3, 2, seed=11)], _quadratic),
    "logistic": Problem(lambda: [0.3 * made(4, 6, seed=12), made(4, seed=13)], _logistic),
    "convolution": Problem(
        lambda: [
            made(3, 1, 3, seed=14),
            made(3, seed=15),
            torch.ones(3).double(),
            0.2 * made(5, 12, seed=16),
            0 * made(5, seed=17),
        ],
        _convolution,
    ),
}
