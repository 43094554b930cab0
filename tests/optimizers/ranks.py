"""Two ranks train one network as DistributedDataParallel and as FSDP2, beside a process that sees
the whole batch.

``python ranks.py FOLDER`` writes found.json: by optimizer, the largest difference of a weight from
the single process ("ddp", "fsdp"), between the ranks ("between"), and of a training that went on
from a checkpoint of FSDP2 ("resumed").
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing, nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from feedline.convergence.fixes.adamw import adamw
from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.larc import Larc
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.muon import muon
from feedline.convergence.fixes.novograd import NovoGrad
from feedline.convergence.fixes.soap import soap

RANKS, STEPS, SAVED = 2, 3, 2
Make = Callable[..., torch.optim.Optimizer]
MAKERS: dict[str, Make] = {
    "lars": Lars,
    "larc": Larc,
    "lamb": Lamb,
    "novograd": NovoGrad,
    "adamw": adamw,
    "muon": muon,
    "soap": soap,
}
WITHOUT_FSDP = {"soap"}  # pytorch_optimizer mixes DTensors and tensors


def network() -> nn.Sequential:
    """Sizes that two ranks cannot halve: one of them has the smaller part, or none."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 3, 3),
        nn.Flatten(),
        nn.LayerNorm(48),
        nn.Linear(48, 7),
        nn.ReLU(),
        nn.Linear(7, 1),
        nn.Linear(1, 5),
    ]
    return nn.Sequential(*layers).double()


def sharded() -> nn.Module:
    model, mesh = network(), init_device_mesh("cpu", (RANKS,))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def made(make: Make, model: nn.Module) -> torch.optim.Optimizer:
    return make(model if make is muon else model.parameters(), lr=0.05)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, part: slice, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(
            8, 1, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64
        )
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[part]), (torch.arange(8) % 5)[part]).backward()
        optimizer.step()


def whole(model: nn.Module) -> list[Tensor]:
    tensors: list[Any] = [param.detach() for param in model.parameters()]
    return [
        tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for tensor in tensors
    ]


def furthest(some: list[Tensor], others: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(some, others))


def between_ranks(tensors: list[Tensor]) -> float:
    copies = [tensor.clone() for tensor in tensors]
    for copied in copies:
        dist.broadcast(copied, src=0)
    return furthest(copies, tensors)


def resumed(make: Make, part: slice) -> nn.Module:
    """A training that went on in another process's place after SAVED steps."""
    first, second = sharded(), sharded()
    optimizer, other = made(make, first), made(make, second)
    train(first, optimizer, part, range(SAVED))
    with torch.no_grad():
        for param, saved in zip(second.parameters(), first.parameters()):
            param.copy_(saved)
    set_optimizer_state_dict(second, other, get_optimizer_state_dict(first, optimizer))
    train(second, other, part, range(SAVED, STEPS))
    return second


def differences(name: str, part: slice) -> dict[str, float]:
    make, alone, model = MAKERS[name], network(), DistributedDataParallel(network())
    train(alone, made(make, alone), slice(None), range(STEPS))
    train(model, made(make, model.module if make is muon else model), part, range(STEPS))
    found = {"ddp": furthest(whole(alone), whole(model)), "between": between_ranks(whole(model))}
    if name not in WITHOUT_FSDP:
        shards = sharded()
        train(shards, made(make, shards), part, range(STEPS))
        found["fsdp"] = furthest(whole(alone), whole(shards))
        found["resumed"] = furthest(whole(shards), whole(resumed(make, part)))
    return found


def rank_of(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    found = {name: differences(name, slice(rank, None, RANKS)) for name in MAKERS}
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.start_processes(rank_of, (sys.argv[1],), nprocs=RANKS, start_method="fork")
