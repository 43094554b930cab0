"""LARS, LARC, LAMB and NovoGrad as their papers have them: one tensor, one step, plain arithmetic."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

Memory = dict[str, Any]  # of one tensor
Step = Callable[..., Tensor]


def lars(
    w: Tensor,
    g: Tensor,
    memory: Memory,
    lr: float,
    adapted: bool,
    momentum=0.9,
    weight_decay=0.0,
    trust_coefficient=0.02,
    excluded_lr_scale=0.1,
) -> Tensor:
    """arXiv 1708.03888, equations 4 to 6 and the algorithm below them."""
    local, decay = lr * excluded_lr_scale, 0.0
    if adapted:
        decay = weight_decay
        if w.norm() > 0 and g.norm() > 0:
            local = lr * trust_coefficient * w.norm() / (g.norm() + decay * w.norm())
    memory["v"] = momentum * memory.get("v", 0 * w) + local * (g + decay * w)
    return w - memory["v"]


def larc(
    w: Tensor,
    g: Tensor,
    memory: Memory,
    lr: float,
    adapted: bool,
    momentum=0.9,
    weight_decay=0.0,
    trust_coefficient=0.02,
    eps=1e-8,
    excluded_lr_scale=1.0,
) -> Tensor:
    """Clip mode: the local rate is at most the global one."""
    local, decay = lr * excluded_lr_scale, 0.0
    if adapted:
        decay = weight_decay
        if w.norm() > 0 and g.norm() > 0:
            local = min(
                float(trust_coefficient * w.norm() / (g.norm() + decay * w.norm() + eps)), lr
            )
    memory["v"] = momentum * memory.get("v", 0 * w) + local * (g + decay * w)
    return w - memory["v"]


def apex_larc(
    w: Tensor,
    g: Tensor,
    memory: Memory,
    lr: float,
    momentum=0.9,
    weight_decay=0.0,
    trust_coefficient=0.02,
    eps=1e-8,
) -> Tensor:
    """As apex writes it: gradients scaled by the clipped ratio, then SGD with momentum, whose rate
    stands outside.
    """
    ratio = min(
        float(trust_coefficient * w.norm() / (g.norm() + weight_decay * w.norm() + eps)) / lr, 1
    )
    memory["v"] = momentum * memory.get("v", 0 * w) + ratio * (g + weight_decay * w)
    return w - lr * memory["v"]


def lamb(
    w: Tensor,
    g: Tensor,
    memory: Memory,
    lr: float,
    adapted: bool,
    betas=(0.9, 0.999),
    eps=1e-6,
    weight_decay=0.0,
    excluded_lr_scale=1.0,
) -> Tensor:
    """arXiv 1904.00962, algorithm 2; phi is the identity."""
    t = memory["t"] = memory.get("t", 0) + 1
    m = memory["m"] = betas[0] * memory.get("m", 0 * w) + (1 - betas[0]) * g
    v = memory["v"] = betas[1] * memory.get("v", 0 * w) + (1 - betas[1]) * g**2
    r = (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
    if not adapted:
        return w - lr * excluded_lr_scale * r
    u = r + weight_decay * w
    if w.norm() == 0 or u.norm() == 0:
        return w - lr * excluded_lr_scale * u
    return w - lr * w.norm() / u.norm() * u


def novograd(
    w: Tensor,
    g: Tensor,
    memory: Memory,
    lr: float,
    adapted: bool,
    betas=(0.8, 0.5),
    eps=1e-8,
    weight_decay=0.0,
    excluded_lr_scale=1.0,
) -> Tensor:
    """arXiv 1905.11286, algorithm 1."""
    decay, rate = (weight_decay, lr) if adapted else (0.0, lr * excluded_lr_scale)
    if not memory:
        memory["v"] = g.norm() ** 2
        memory["m"] = g / (memory["v"].sqrt() + eps) + decay * w
    else:
        memory["v"] = betas[1] * memory["v"] + (1 - betas[1]) * g.norm() ** 2
        memory["m"] = betas[0] * memory["m"] + (g / (memory["v"].sqrt() + eps) + decay * w)
    return w - rate * memory["m"]
