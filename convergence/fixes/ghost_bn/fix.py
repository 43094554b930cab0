"""Ghost batch norm as ``--fix ghost_bn=VALUE``."""

import torch

from feedline.convergence.fix import Fix, Training
from feedline.convergence.fixes.ghost_bn.modules import convert_ghost_batchnorm

VALUE = "32 (samples of a ghost)"


def parse(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a ghost batch size: expected {VALUE}")
    return int(text)


def lines(ghost: int) -> str:
    return f"from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm\n\nconvert_ghost_batchnorm(model, ghost={ghost})"


def attach(ghost: int, training: Training) -> None:
    def convert(model: torch.nn.Module) -> None:
        convert_ghost_batchnorm(model, ghost)

    training.model(convert)


FIX = Fix(
    name="ghost_bn",
    value=VALUE,
    says="batch norm over parts of the batch, so that a large batch keeps the statistics of a small one",
    control="",
    parse=parse,
    lines=lines,
    attach=attach,
)
