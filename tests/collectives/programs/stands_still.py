"""The second of two ranks stops for a while; the first one waits for it in an all-reduce."""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, WAITS_S = 20, 12

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, losses = nn.Linear(64, 1), torch.zeros(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS + 2):
        if step == STEPS and dist.get_rank() == 1:
            time.sleep(WAITS_S)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 64)).square().mean()
        loss.backward()
        losses += loss.detach()
        dist.all_reduce(losses)
        optimizer.step()
    dist.destroy_process_group()
