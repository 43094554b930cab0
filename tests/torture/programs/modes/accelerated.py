"""accelerate prepares everything, accumulates gradients, and gathers."""

import torch
from accelerate import Accelerator
from tiny import digest, loader, network, sgd

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = network()
net, optimizer, batches = accelerator.prepare(net, sgd(net), loader())
for x in batches:
    with accelerator.accumulate(net):
        loss = net(x).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    print(accelerator.gather(loss.detach()).item(), torch.is_grad_enabled())
digest(accelerator.unwrap_model(net))
