"""The last of two ranks has fewer batches: it comes to the end of its data, does something else,
and is killed while the other waits.
"""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES, FEWER, BATCH, WAITS_S = 20, 17, 4, 3

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=WAITS_S))
    last = dist.get_rank() == 1
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in DataLoader(
        TensorDataset(torch.randn((FEWER if last else BATCHES) * BATCH, 64)), BATCH
    ):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    time.sleep(WAITS_S + 2)
    os.kill(os.getpid(), signal.SIGKILL)
