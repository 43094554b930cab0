"""The optimizers of the arms, by name."""

from collections.abc import Callable

import torch
from torch import nn

from acceptance.arms import Arm
from feedline.convergence.fix import without_small_decay
from feedline.convergence.fixes.adamw import adamw
from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.larc import Larc
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.muon import muon
from feedline.convergence.fixes.novograd import NovoGrad

Make = Callable[[nn.Module, Arm], torch.optim.Optimizer]
MOMENTUM = 0.9  # of SGD


def _sgd(model: nn.Module, arm: Arm) -> torch.optim.Optimizer:
    groups = without_small_decay(model.parameters(), arm.settings["weight_decay"])
    return torch.optim.SGD(groups, lr=arm.rate, momentum=MOMENTUM, **arm.settings)


def _of(kind: Callable[..., torch.optim.Optimizer]) -> Make:
    return lambda model, arm: kind(model.parameters(), lr=arm.rate, **arm.settings)


OPTIMIZERS: dict[str, Make] = {
    "sgd": _sgd,
    "adamw": _of(adamw),
    "lars": _of(Lars),
    "larc": _of(Larc),
    "lamb": _of(Lamb),
    "novograd": _of(NovoGrad),
    "muon": lambda model, arm: muon(model, lr=arm.rate, **arm.settings),
}
