"""Step time of feedline's optimizers beside torch.optim's foreach SGD and AdamW, on the parameters
of torchvision's ResNet-18.

All optimizers make a few steps each in turns, in one process, each with parameters and gradients of
its own; a ratio is of two that were measured in the same round. CPU seconds hold on a shared
machine where wall times do not.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from twins import Estimate, in_turns, table, write_json

from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.larc import Larc
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.muon import muon
from feedline.convergence.fixes.novograd import NovoGrad
from feedline.convergence.fixes.soap import soap

Made = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MAKERS: dict[str, Made] = {
    "SGD foreach": lambda params: torch.optim.SGD(
        params, lr=1e-3, momentum=0.9, weight_decay=1e-4, foreach=True
    ),
    "AdamW foreach": lambda params: torch.optim.AdamW(params, lr=1e-3, foreach=True),
    "AdamW one by one": lambda params: torch.optim.AdamW(params, lr=1e-3, foreach=False),
    "Lars": lambda params: Lars(params, lr=1e-3),
    "Larc": lambda params: Larc(params, lr=1e-3),
    "NovoGrad": lambda params: NovoGrad(params, lr=1e-3),
    "Lamb": lambda params: Lamb(params, lr=1e-3),
    "Lamb one by one": lambda params: Lamb(params, lr=1e-3, foreach=False),
    "muon": lambda params: muon(params, lr=1e-3),
    "soap": lambda params: soap(params, lr=1e-3, max_precondition_dim=1024),
}
SLOW = {"muon", "soap"}  # matrix products and decompositions: one step a round


def parameters() -> list[nn.Parameter]:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    params = list(resnet18().parameters())
    for param in params:
        param.grad = 1e-2 * torch.randn_like(param)
    return params


def measure(optimizer: torch.optim.Optimizer, steps: int) -> tuple[float, float]:
    """CPU and wall seconds of one step."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        optimizer.step()
    return (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=5, help="of each optimizer in a round")
    parser.add_argument("--only", nargs="+", default=list(MAKERS), choices=list(MAKERS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)

    optimizers = {name: MAKERS[name](parameters()) for name in args.only}
    for name, optimizer in optimizers.items():
        measure(optimizer, 1 if name in SLOW else 3)
    rounds = list(
        in_turns(
            args.only,
            lambda name: measure(optimizers[name], 1 if name in SLOW else args.steps),
            args.rounds,
        )
    )

    peers = [name for name in ("SGD foreach", "AdamW foreach") if name in args.only]
    rows = [["optimizer", "step, ms", "CPU, ms", *(f"CPU / {peer}" for peer in peers)]]
    for name in args.only:
        cpu, wall = (Estimate.of([found[name][which] for found in rounds]) for which in (0, 1))
        ratios = [
            Estimate.of([found[name][0] / found[peer][0] for found in rounds]).text()
            for peer in peers
        ]
        rows.append([name, wall.text(1e3, 1), cpu.text(1e3, 1), *ratios])
    print(table(rows))
    write_json(args.json, rounds=rounds)


if __name__ == "__main__":
    main()
