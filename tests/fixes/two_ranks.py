"""A program of two ranks on gloo: local SGD and ghost batch norm.

Says what it found as JSON in the file it is given.
"""

import copy
import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from feedline.convergence.fixes.ghost_bn import GhostBatchNorm1d, convert_ghost_batchnorm
from feedline.convergence.fixes.local_sgd import LocalSgd, local_sgd
from feedline.convergence.fixes.recalibrate_bn import recalibrate
from feedline.convergence.fixes.warmup import Warmup

SAMPLES, STEPS = 24, 7


def model(seed: int, norm: bool = True) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)]
    return nn.Sequential(
        *(layer for layer in layers if norm or not isinstance(layer, nn.BatchNorm1d))
    ).double()


def batch(step: int, rank: int | None) -> torch.Tensor:
    """A rank's samples of a step; None: of both ranks."""
    x = torch.randn(
        2 * SAMPLES, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step)
    )
    return x if rank is None else x[rank * SAMPLES : (rank + 1) * SAMPLES]


def train(net, optimizer, rank, steps=range(STEPS), each=lambda: None):
    for step in steps:
        optimizer.zero_grad()
        x = batch(step, rank)
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        each()
    return net


def state_of(net) -> torch.Tensor:
    return torch.cat(
        [each.detach().double().reshape(-1) for each in (*net.parameters(), *net.buffers())]
    )


def apart(tensor: torch.Tensor) -> float:
    """Largest difference between the ranks."""
    both = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(both, tensor)
    return float((both[0] - both[1]).abs().max())


def every_step_is_the_exchange_of_gradients(rank):
    alone = model(0, norm=False)
    train(alone, torch.optim.SGD(alone.parameters(), 0.05, momentum=0.9), None)
    net = model(rank, norm=False)  # rank 1 begins elsewhere, and gets rank 0's
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    train(net, local_sgd(net, optimizer, period=1, momentum=True), rank)
    return float((state_of(net) - state_of(alone)).abs().max())


def buffers_and_momentum(rank):
    """How far apart the ranks are after each update, with an exchange every third."""
    net = model(0)
    inner = torch.optim.AdamW(net.parameters(), 0.01)
    optimizer = local_sgd(net, inner, period=3, momentum=True)
    of_state, of_momentum = [], []

    def look():
        of_state.append(apart(state_of(net)))
        of_momentum.append(
            apart(torch.cat([inner.state[p]["exp_avg"].reshape(-1) for p in net.parameters()]))
        )

    train(net, optimizer, rank, each=look)
    return {"state": of_state, "momentum": of_momentum}


def without_buffers(rank):
    net = model(0)
    train(
        net,
        local_sgd(net, torch.optim.SGD(net.parameters(), 0.01), period=1, buffers=False),
        rank,
        range(1),
    )
    return {"parameters": apart(net[0].weight.detach()), "buffers": apart(net[1].running_mean)}


def post_local(rank):
    """DistributedDataParallel with ghosts: apart after each update, and the same when it is resumed
    in the middle of the first part.
    """
    net = model(0)
    ddp = DistributedDataParallel(net, broadcast_buffers=False)
    convert_ghost_batchnorm(ddp, 8)
    inner = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    optimizer = local_sgd(ddp, inner, period=2, after=3)
    far, checkpoint = [], []

    def look():
        far.append(apart(net[0].weight.detach()))
        if len(far) == 4:
            checkpoint.append(copy.deepcopy((net.state_dict(), optimizer.state_dict())))

    train(ddp, optimizer, rank, each=look)
    other = convert_ghost_batchnorm(model(5), 8)
    again = DistributedDataParallel(other, broadcast_buffers=False)
    resumed = local_sgd(
        again, torch.optim.SGD(other.parameters(), 0.02, momentum=0.9), period=2, after=3
    )
    other.load_state_dict(checkpoint[0][0])
    resumed.load_state_dict(checkpoint[0][1])
    train(again, resumed, rank, range(4, STEPS))
    ghosts = isinstance(net[1], GhostBatchNorm1d), int(net[1].num_batches_tracked)
    return {
        "far": far,
        "resumed": float((state_of(net) - state_of(other)).abs().max()),
        "ghosts": ghosts,
    }


def hooks_and_schedulers(rank):
    net = model(0)
    optimizer = local_sgd(net, torch.optim.SGD(net.parameters(), 1.0), period=2)
    calls, rates = [], []
    optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    optimizer.register_step_post_hook(lambda *_: calls.append(apart(net[0].weight.detach()) == 0))
    warmup = Warmup(optimizer, samples=4)
    optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, total_steps=20, cycle_momentum=False
    )
    warmup.count(1)
    train(net, optimizer, rank, range(1))
    warmup.count(1)
    schedule.step()
    train(net, optimizer, rank, range(1))
    optimizer.load_state_dict(optimizer.state_dict())
    return {
        "exchanged": calls,
        "factors": [rates[1] / rates[0], rates[3] / rates[2]],
        "groups": optimizer.param_groups is optimizer.optim.param_groups,
    }


def refusals(rank):
    found = []
    with_buffers = DistributedDataParallel(model(0))
    plain = model(0)
    for act in (
        lambda: local_sgd(with_buffers, torch.optim.SGD(with_buffers.parameters(), 0.1), 2),
        lambda: local_sgd(plain, torch.optim.SGD(plain.parameters(), 0.1), 2, after=5),
        lambda: LocalSgd(torch.optim.SGD(plain.parameters(), 0.1), object()),
    ):
        try:
            act()
        except ValueError as error:
            found.append(str(error))
    return found


def recalibrated(rank):
    """Statistics over both ranks against those of all samples at once."""
    net, whole = model(0), model(0)
    recalibrate(net, [batch(step, rank) for step in range(2)], all_ranks=True)
    inputs = whole[0](torch.cat([batch(step, None) for step in range(2)]))
    return float((net[1].running_var - inputs.var(0)).abs().max())


if __name__ == "__main__":
    out, number, meeting = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=2)
    acts = [
        every_step_is_the_exchange_of_gradients,
        buffers_and_momentum,
        without_buffers,
        post_local,
        hooks_and_schedulers,
        refusals,
        recalibrated,
    ]
    out.write_text(json.dumps({act.__name__: act(number) for act in acts}))
    dist.destroy_process_group()
