"""Two ranks of DistributedDataParallel; the second one's samples take longer. Its sampler is never
told the epoch.

torchrun --standalone --nproc-per-node 2 -m feedline run ranks.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """4 ms each on the second rank, else 1 ms."""

    def __init__(self, late: bool) -> None:
        self.seconds = 0.004 if late else 0.001

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.seconds)
        return torch.randn(
            64, generator=torch.Generator().manual_seed(index)
        ) + index % 3, index % 3


def main() -> None:
    dist.init_process_group("gloo")
    samples = Samples(dist.get_rank() == 1)
    loader = DataLoader(samples, 4, sampler=DistributedSampler(samples))
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 3))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


torch.set_num_threads(1)
main()
