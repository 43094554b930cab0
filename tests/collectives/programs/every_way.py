"""Two gloo ranks: every way in which a program comes to a collective, one section each."""

import contextlib
import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

SECTIONS: dict[str, tuple[int, int]] = {}


@contextlib.contextmanager
def section(name):
    dist.barrier()
    begin = time.perf_counter_ns()
    yield
    SECTIONS[name] = begin, time.perf_counter_ns()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


def train(model, steps=3, accumulate=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for part in range(accumulate):
            waits = part < accumulate - 1
            with model.no_sync() if waits else contextlib.nullcontext():
                model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Half(nn.Module):
    """Uses one of two layers."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(64, 8), nn.Linear(64, 8)

    def forward(self, x):
        return self.used(x)


def ddp():
    with section("ddp_made"):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    with section("ddp"):
        train(model, steps=4)
    with section("no_sync"):
        train(model, steps=2, accumulate=3)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, fp16_compress_hook)
    with section("fp16_hook"):
        train(model)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01, static_graph=True)
    with section("static_graph"):
        train(model)
    model = DistributedDataParallel(Half(), find_unused_parameters=True)
    with section("unused"):
        train(model)


def sharded():
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    with section("fsdp"):
        train(model)
    model = network()
    mesh = dist.init_device_mesh("cpu", (2,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with section("tensor_parallel"):
        train(model, steps=2)


def by_hand(rank):
    one, two = torch.ones(10), torch.ones(20)
    halves = [torch.ones(10), torch.ones(10)]
    with section("by_hand"):
        dist.all_reduce(one)
        dist.all_reduce(torch.ones(10, dtype=torch.float64))
        dist.all_reduce(torch.ones(10, dtype=torch.bfloat16))
        dist.broadcast(one, 0)
        dist.reduce(one, 1)
        dist.all_gather(halves, one)
        dist._all_gather_base(two, one)
        dist.reduce_scatter(one, halves)
        dist._reduce_scatter_base(one, two)
        dist.gather(one, halves if rank == 0 else None, dst=0)
        dist.scatter(one, halves if rank == 0 else None, src=0)
        dist.all_to_all_single(two, torch.ones(20))
        dist.barrier()
        dist.monitored_barrier()
    with section("between_two"):
        for _ in range(2):
            dist.send(one, 1) if rank == 0 else dist.recv(one, 0)
        dist.recv(one, 1) if rank == 0 else dist.send(one, 0)
        exchange = [
            dist.P2POp(dist.isend, one, 1 - rank),
            dist.P2POp(dist.irecv, two[:10], 1 - rank),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
    with section("from_anybody"):
        dist.recv(one) if rank == 0 else dist.send(one, 0)
        dist.all_reduce(one)
    with section("objects"):
        dist.all_gather_object([None, None], {"rank": rank})
        dist.broadcast_object_list([rank], 0)
    with section("waited_late"):
        work = dist.all_reduce(torch.ones(10), async_op=True)
        time.sleep(0.5)
        work.wait()


def functionally():
    group = dist.group.WORLD
    with section("functional"):
        functional.all_reduce(torch.ones(10), "sum", group).sum()
        functional.all_gather_tensor(torch.ones(10), 0, group).sum()
    with section("inference"), torch.inference_mode():
        dist.all_reduce(torch.ones(10))
        functional.all_reduce(torch.ones(10), "sum", group).sum()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        return functional.all_reduce(x * 2, "sum", group) + 1

    compiled(torch.ones(10))
    with section("compiled"):
        compiled(torch.ones(10))


def groups():
    for name in ("first_group", "second_group"):
        group = dist.new_group([0, 1])
        with section(name):
            dist.all_reduce(torch.ones(10), group=group)
            dist.all_reduce(torch.ones(10), group=group)
        dist.destroy_process_group(group)
    gc.collect()  # a reducer that outlives its group can hang (docs/communication-recording.md)
    late = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
    del late
    dist.destroy_process_group()  # with work in flight
    os.environ["MASTER_PORT"] = os.environ[
        "ANOTHER_PORT"
    ]  # at the same one, torch alone can meet in the old store and hang
    dist.init_process_group("gloo")
    with section("again"):
        dist.all_reduce(torch.ones(10))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ddp()
    by_hand(rank)
    functionally()
    sharded()
    recorded = torch._C._distributed_c10d._dump_fr_trace_json()
    flight = json.loads(recorded)
    groups()
    with open(sys.argv[1], "w") as file:
        json.dump(
            {"sections": SECTIONS, "flight": flight, "until": SECTIONS["tensor_parallel"][1]},
            file,
            default=str,
        )
    dist.destroy_process_group()
