"""DistributedDataParallel on gloo with layers that take a given time without a CPU, as on an
accelerator: for machines with few cores.

Each layer sleeps in forward and in backward, unevenly, and has parameters; so buckets become ready
one by one during backward. The gradients and the all-reduces are real.
"""

import argparse
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 64


class Pace(torch.autograd.Function):
    """Takes its time in both directions, and changes nothing."""

    @staticmethod
    def forward(ctx, x, layer):  # type: ignore[no-untyped-def]
        ctx.layer = layer
        time.sleep(layer.pace(1.0))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        time.sleep(ctx.layer.pace(2.0))
        return gradient, None


class Layer(torch.nn.Module):
    """Args:
    nbytes: of its parameters. seconds: of its forward; backward takes twice as long.
    """

    def __init__(self, nbytes: int, seconds: float, uneven: float, dice: random.Random) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(nbytes // 4 // WIDTH, WIDTH) * 0.01)
        self.seconds, self.uneven, self.dice = seconds, uneven, dice

    def pace(self, times: float) -> float:
        return max(0.0, self.seconds * times * self.dice.gauss(1.0, self.uneven))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Pace.apply(x + (x @ self.weight.T).sum(1, keepdim=True) * 1e-6, self)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--kb", type=int, default=256, help="of parameters of each layer")
    parser.add_argument("--ms", type=float, default=4.0, help="of each layer's forward")
    parser.add_argument("--uneven", type=float, default=0.03)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bucket-mb", type=float, default=0.5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dice = random.Random(dist.get_rank())
    torch.manual_seed(0)
    layers = [Layer(args.kb * 1024, args.ms / 1e3, args.uneven, dice) for _ in range(args.layers)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=args.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = DataLoader(TensorDataset(torch.randn(8 * args.steps, WIDTH)), batch_size=8)
    word = torch.zeros(1)
    for _ in range(10):  # a logged loss would do as well: small messages tell the latency
        dist.all_reduce(word)
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.barrier()
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
