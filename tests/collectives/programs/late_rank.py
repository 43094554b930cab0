"""DistributedDataParallel of two ranks that see samples of their own; the last one takes 40 ms
longer in each step, or fails; or of several with buffers to broadcast, of which the first takes
longer.

late_rank.py SAID.json wait|forward|fails|buffers
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, LATE_S = 24, 4, 0.04


class Samples(Dataset):
    def __init__(self, rank: int, late: bool) -> None:
        self.rank, self.late = rank, late

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.late:
            time.sleep(LATE_S / BATCH)
        return torch.randn(64, generator=torch.Generator().manual_seed(2 * index + self.rank))


class Model(nn.Module):
    def __init__(self, late: bool, buffers: bool) -> None:
        super().__init__()
        norm = [nn.BatchNorm1d(256)] if buffers else []
        self.late, self.layers = (
            late,
            nn.Sequential(nn.Linear(64, 256), *norm, nn.ReLU(), nn.Linear(256, 1)),
        )

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        if self.late:
            time.sleep(LATE_S)
        return self.layers(samples)


def main() -> None:
    dist.init_process_group("gloo")
    rank, phase = dist.get_rank(), sys.argv[2]
    late = rank == (0 if phase == "buffers" else dist.get_world_size() - 1)
    model = nn.parallel.DistributedDataParallel(
        Model(late and phase == "forward", phase == "buffers")
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, samples in enumerate(
        DataLoader(Samples(rank, late and phase in ("wait", "buffers")), BATCH)
    ):
        if late and phase == "fails" and step == STEPS // 2:
            raise ValueError("of the last rank only")
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
