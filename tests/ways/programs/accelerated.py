"""A loop with Accelerate, for ``accelerate launch``."""

import counted
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    net = counted.network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(counted.Numbers(48), batch_size=4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    steps = samples = 0
    for x in loader:
        optimizer.zero_grad()
        accelerator.backward(net(x).square().mean())
        optimizer.step()
        steps, samples = steps + 1, samples + len(x)
    counted.tell("group", net, steps, samples, accelerator.process_index, accelerator.num_processes)
    accelerator.wait_for_everyone()
    accelerator.end_training()
