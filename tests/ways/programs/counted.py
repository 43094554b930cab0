"""Small trainings that count themselves. Lies beside every program when it runs.

Each training leaves ``said/NAME-RANK.json``: what really happened, whatever a recorder says of it.
"""

import hashlib
import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
SAID = HERE / "said"


class Numbers(Dataset):
    """Samples of four numbers each, always the same."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.sin(torch.arange(4.0) * index)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(
    name,
    net=None,
    steps=6,
    batch=4,
    rank=0,
    world=1,
    dataset=None,
    workers=0,
    during=lambda step: None,
):
    """Make ``steps`` steps, the last with one sample less than the others, and say so.

    Args:
        during: called with the number of each step before it is made.
    """
    net = network() if net is None else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    made, samples = 0, 0
    for x in DataLoader(
        dataset or Numbers(steps * batch - 1), batch_size=batch, num_workers=workers
    ):
        during(made)
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        made, samples = made + 1, samples + len(x)
    tell(name, net, made, samples, rank, world)


def train_rank(name, rank, world, **settings):
    """One rank of a group that is already there: the ranks make as many steps, of batches of
    different sizes.
    """
    import torch.distributed as dist

    net = DistributedDataParallel(network())
    train(name, net, batch=4 + rank, rank=rank, world=world, **settings)
    dist.barrier()
    del net  # a reducer that outlives its group can hang
    dist.destroy_process_group()


def tell(name, net, steps, samples, rank=0, world=1):
    """Say what was trained, on standard output and in a file that must not be there yet."""
    with torch.no_grad():
        data = b"".join(
            parameter.detach().contiguous().numpy().tobytes() for parameter in net.parameters()
        )
    parameters = hashlib.sha256(data).hexdigest()[:12]
    said = {
        "training": name,
        "rank": rank,
        "world": world,
        "steps": steps,
        "samples": samples,
        "parameters": parameters,
    }
    line = f"trained {name}, rank {rank} of {world}: {steps} steps, {samples} samples\n"
    print(
        line, end="", flush=True
    )  # in one write, or another process's line comes between it and its end
    SAID.mkdir(exist_ok=True)
    with open(SAID / f"{name}-{rank}.json", "x") as file:
        json.dump({**said, "pid": os.getpid()}, file)


def meet(name, count):
    """Wait until so many processes called this: each then has a job, and a pool gives none of them
    two.
    """
    met = HERE / "met"
    met.mkdir(exist_ok=True)
    (met / str(name)).touch()
    until = time.monotonic() + 60
    while len(list(met.iterdir())) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{name} waited for the others")
        time.sleep(0.01)
