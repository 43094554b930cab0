"""Autocast to bfloat16 and a GradScaler on the CPU, one of whose steps is skipped for an infinity."""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=2.0**10)
for number, x in enumerate(loader()):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x).square().mean()
    scaler.scale(loss * (float("inf") if number == 3 else 1)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    print(scaler.get_scale(), loss.dtype)
digest(net)
