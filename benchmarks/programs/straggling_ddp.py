"""DistributedDataParallel on gloo whose ranks are late on purpose, now this one, now that one, and
a calibration of its transfers.

Layers sleep instead of computing, as with an accelerator; gradients and all-reduces are real. The
dataset of the late rank sleeps longer. Who is late when, and by how much, follows from the step's
number alone: ``planned`` tells it to whoever holds the recording against it.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

DELAYS_MS = (0.0, 20.0, 50.0, 80.0)
WARM_UP = 6


def planned(step: int, ranks: int) -> tuple[int, float]:
    """(late rank, ms) of a step; the first few are healthy."""
    dice = random.Random(7919 * step + ranks)
    late, ms = dice.randrange(ranks), DELAYS_MS[(step + dice.randrange(2) * 2) % len(DELAYS_MS)]
    return late, ms if step >= WARM_UP else 0.0


class Pace(torch.autograd.Function):
    """Takes its time, backward twice as much."""

    @staticmethod
    def forward(ctx, x, seconds):  # type: ignore[no-untyped-def]
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Layer(torch.nn.Module):
    """So many bytes of parameters."""

    def __init__(self, nbytes: int, seconds: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(nbytes // 4 // 64, 64) * 0.01)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Pace.apply(x + (x @ self.weight.T).sum(1, keepdim=True) * 1e-6, self.seconds)  # type: ignore[no-any-return]


class Late(Dataset[torch.Tensor]):
    """A batch a step, late where that is planned."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> torch.Tensor:
        late, ms = planned(step, dist.get_world_size())
        time.sleep(0.002 + (ms / 1e3 if late == dist.get_rank() else 0.0))
        return torch.randn(8, 64)


def calibrate(nbytes: int, rest_s: float, late_s: float) -> list[float]:
    """Seconds of one bucket after the last rank began, mean over the ranks; by the time of day,
    which time namespaces leave alone.

    Ranks that wait for one other have sent each other their first chunks already: what is left
    moves faster.

    Args:
        rest_s: before each; the link rests as it does in a step: a token bucket fills up.
        late_s: by which one rank, in turns, is late.
    """
    bucket, found = torch.zeros(nbytes // 4), []
    for number in range(12):
        time.sleep(rest_s)
        dist.barrier()
        if number % dist.get_world_size() == dist.get_rank():
            time.sleep(late_s)
        begun = time.time_ns()
        dist.all_reduce(bucket)
        own = torch.tensor([begun, time.time_ns()])
        of_ranks = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(of_ranks, own)
        starts, ends = torch.stack(of_ranks).T
        found.append(float((ends - starts.max()).double().mean()) / 1e9)
    return found


def train(layers: int, nbytes: int, seconds: float, steps: int) -> None:
    """A bucket a layer.

    The model is gone with it: a reducer that outlives its group can hang
    (docs/communication-recording.md).
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(*(Layer(nbytes, seconds) for _ in range(layers))),
        bucket_cap_mb=nbytes / (1 << 20),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x in DataLoader(Late(steps), batch_size=None):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--kb", type=int, default=256)
    parser.add_argument("--ms", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--truth", type=Path, required=True)
    args = parser.parse_args()
    nbytes, seconds = args.kb * 1024, args.ms / 1e3
    dist.init_process_group("gloo")
    before = [calibrate(nbytes, seconds, late_s) for late_s in (0.0, DELAYS_MS[-1] / 1e3)]
    train(args.layers, nbytes, seconds, args.steps)
    after = [calibrate(nbytes, seconds, late_s) for late_s in (0.0, DELAYS_MS[-1] / 1e3)]
    if dist.get_rank() == 0:
        alone, behind = (one + other for one, other in zip(before, after, strict=True))
        args.truth.write_text(
            json.dumps({"bucket_s": alone, "late_bucket_s": behind, "buckets": args.layers})
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
