"""Two ranks train in every way that ranks share gradients; beside each run the true norms, from a
copy of the model, are written as JSON.

two_ranks.py FOLDER
"""

import contextlib
import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import feedline
from feedline.convergence.fixes.local_sgd import local_sgd

UPDATES, BATCH = 8, 4
WAYS = (
    *("ddp", "hook", "manual", "fsdp2", "accumulated", "same_data", "sum", "clipped", "none"),
    *("local_sgd", "in_part", "zero"),
)
#: Ways in which the model is a DistributedDataParallel.
DDP = ("ddp", "hook", "accumulated", "same_data", "clipped", "local_sgd", "in_part", "zero")


def make() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


NORMED = {
    "batch_norm_of_2": ("batch", 2),
    "batch_norm_of_64": ("batch", 64),
    "group_norm_of_2": ("group", 2),
}


def train_normed(kind: str, batch: int, rank: int) -> None:
    """A convolutional network with layers that normalize, and this many samples per rank and
    forward.
    """
    torch.manual_seed(rank)
    layer = torch.nn.BatchNorm2d(8) if kind == "batch" else torch.nn.GroupNorm(4, 8)
    head = torch.nn.Linear(8, 3)
    inner = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), layer, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), head
    )
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader(batch):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def loader(batch: int) -> torch.utils.data.DataLoader:
    images, labels = torch.randn(6 * batch, 3, 8, 8), torch.randint(3, (6 * batch,))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch)


def train_on_all(way: str) -> None:
    """Each rank draws the whole dataset, in the same order."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.randint(3, (24,)))
    model = make()
    trained = model[2]  # a part of the model, which has no norms
    if way == "tensor_parallel":
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = trained = parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for images, labels in torch.utils.data.DataLoader(data, BATCH, shuffle=True):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def norm(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    return sum(float(parameter.grad.double().square().sum()) for parameter in model.parameters())


def train(way: str, rank: int) -> list[list[float]]:
    """Returns [small, big] for every update: of this rank's batch, and of both ranks' together."""
    model, twin = make(), make()
    inner = model
    if way in DDP:
        model = DistributedDataParallel(model)
    if way == "hook":
        model.register_comm_hook(None, allreduce_hook)
    if way == "fsdp2":
        fully_shard(model)
    trained = inner[2].parameters() if way == "in_part" else model.parameters()
    optimizer = torch.optim.SGD(trained, lr=0.1)
    if way == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    if way == "local_sgd":
        optimizer = local_sgd(model, optimizer, period=4)
    generator = torch.Generator().manual_seed(1)
    micros = 2 if way == "accumulated" else 1
    off = torch.amp.GradScaler("cpu", enabled=False)  # as of a program that trains in bfloat16
    truth = []
    for _ in range(UPDATES):
        images, labels = (
            torch.randn(2, micros * BATCH, 6, generator=generator),
            torch.randint(3, (2, micros * BATCH), generator=generator),
        )
        own = 0 if way == "same_data" else rank
        if way != "fsdp2":
            twin.load_state_dict(copy.deepcopy(inner.state_dict()))
        else:
            full = {name: value.full_tensor() for name, value in inner.state_dict().items()}
            twin.load_state_dict(full)
        both = (
            (images[0], labels[0])
            if way == "same_data"
            else (images.flatten(0, 1), labels.flatten())
        )
        with contextlib.nullcontext():
            recorded_apart = norm_without_recording(twin, (images[own], labels[own]), both)
        truth.append(recorded_apart)
        for micro in range(micros):
            part = slice(micro * BATCH, (micro + 1) * BATCH)
            last = micro == micros - 1
            with contextlib.nullcontext() if last or way != "accumulated" else model.no_sync():
                loss = F.cross_entropy(model(images[own][part]), labels[own][part]) / micros
                (off.scale(loss) if way == "manual" else loss).backward()
        if way in ("manual", "sum"):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                if way == "manual":
                    parameter.grad /= 2
        if way == "clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
    return truth


def norm_without_recording(twin: torch.nn.Module, own: tuple, both: tuple) -> list[float]:
    """The twin's own forwards and backwards are not the training's."""
    from feedline.profiler.record.recorder import recorder

    watch, recorder.convergence = recorder.convergence, None
    try:
        return [norm(twin, *own), norm(twin, *both)]
    finally:
        recorder.convergence = watch


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, folder = dist.get_rank(), Path(sys.argv[1])
    for way in WAYS:
        with feedline.record(folder / way):
            truth = train(way, rank)
        (folder / f"{way}.{rank}.json").write_text(json.dumps(truth))
        dist.barrier()
    for way in ("tensor_parallel", "data_parallel"):
        with feedline.record(folder / way):
            train_on_all(way)
        dist.barrier()
    for way, (kind, batch) in NORMED.items():
        with feedline.record(folder / way):
            train_normed(kind, batch, rank)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
