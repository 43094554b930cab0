"""The model of the table: three strided convolutions and a linear layer, about 2,500 parameters."""

from typing import Literal

import torch
from torch import nn

Norm = Literal["none", "batch", "ghost"]

CHANNELS, CLASSES = 16, 10
LEFT = 5  # positions after three strides of 2, of 40
GHOST = 32  # samples whose statistics one ghost batch shares: the small batch


def make(norm: Norm, channels: int = CHANNELS) -> nn.Sequential:
    """Create the model: [batch, 1, 40] -> [batch, 10].

    Args:
        norm: after each convolution. The weights drawn are the same for all three.
    """
    layers: list[nn.Module] = []
    inputs = 1
    for kernel in (5, 3, 3):
        layers.append(nn.Conv1d(inputs, channels, kernel, stride=2, padding=kernel // 2))
        layers += [nn.BatchNorm1d(channels)] if norm != "none" else []
        layers.append(nn.ReLU())
        inputs = channels
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * LEFT, CLASSES))
    if norm == "ghost":
        from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm

        convert_ghost_batchnorm(model, ghost=GHOST)
    return model


def score(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Accuracy (0 to 1) and mean cross-entropy over these samples, in evaluation mode; the model
    returns to training mode.
    """
    model.eval()
    with torch.no_grad():
        out = model(x)
        found = (
            (out.argmax(1) == y).float().mean().item(),
            nn.functional.cross_entropy(out, y).item(),
        )
    model.train()
    return found
