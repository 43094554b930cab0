"""A short training that leaves something in every part of a run folder: small_training.py finish |
kill | ddp
"""

import os
import signal
import sys
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]


class Numbers(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.001)
        return torch.full((8,), index / 32), index % 3


def main() -> None:
    torch.set_num_threads(1)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)
    )
    if HOW == "ddp":
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss_of = torch.nn.CrossEntropyLoss()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=0 if HOW == "ddp" else 2, shuffle=True)
    for _ in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            for part in range(2):
                (loss_of(model(x[part::2]), y[part::2]) / 2).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(Numbers(), batch_size=16):
                loss_of(model(x), y)
    time.sleep(0.3)  # for the gauges
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
