"""The four optimizers of this project, beside their papers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from optimizers import paper
from optimizers.problems import Problem
from torch import Tensor, nn

from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.larc import Larc
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.novograd import NovoGrad


@dataclass(frozen=True)
class Kind:
    """make: the optimizer; paper: its step; lr: that trains the problems; settings: other than the
    defaults, for both.
    """

    make: Callable[..., torch.optim.Optimizer]
    paper: paper.Step
    lr: float
    settings: dict[str, Any]


KINDS = {
    "lars": Kind(Lars, paper.lars, 1.0, {"trust_coefficient": 0.02}),
    "larc": Kind(Larc, paper.larc, 0.1, {}),
    "lamb": Kind(Lamb, paper.lamb, 0.05, {}),
    "novograd": Kind(NovoGrad, paper.novograd, 0.05, {}),
}

WARM_UP = [0, 0.1, 0.2, 0.4, 0.8, 1, 1, 0.9, 0.7, 0.4]  # of the rate, ten steps


def by_paper(
    kind: Kind,
    problem: Problem,
    adapted: Callable[[Tensor], bool],
    rates: Sequence[float],
    **settings: Any,
) -> list[list[Tensor]]:
    """The weights after each step."""
    weights, memory, found = problem.start(), [{} for _ in problem.start()], []
    for step, rate in enumerate(rates):
        grads = problem.gradients(weights, step)
        weights = [
            kind.paper(w, g, seen, kind.lr * rate, adapted(w), **kind.settings, **settings)
            for w, g, seen in zip(weights, grads, memory)
        ]
        found.append(weights)
    return found


def by_optimizer(
    optimizer: torch.optim.Optimizer,
    problem: Problem,
    rates: Sequence[float],
    first: int = 0,
    params: list[nn.Parameter] | None = None,
) -> list[list[Tensor]]:
    """The weights after each step, at the first rate times ``rates``.

    Args:
        first: steps that were made before.
        params: in the problem's order; None: as in the groups.
    """
    params = params or [param for group in optimizer.param_groups for param in group["params"]]
    found, lr = [], optimizer.defaults["lr"]
    for step, rate in enumerate(rates, first):
        for group in optimizer.param_groups:
            group["lr"] = lr * rate
        optimizer.zero_grad()
        problem.loss(params, step).backward()
        optimizer.step()
        found.append([param.detach().clone() for param in params])
    return found


def furthest(some: list[list[Tensor]], others: list[list[Tensor]]) -> float:
    """The largest difference of two weights, of all steps and tensors."""
    assert len(some) == len(others) and all(len(a) == len(b) for a, b in zip(some, others))
    return max(
        float((a - b).detach().abs().max())
        for left, right in zip(some, others)
        for a, b in zip(left, right)
    )
