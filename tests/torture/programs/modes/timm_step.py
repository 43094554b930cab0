"""A timm network with its own EMA, optimizer factory and schedule."""

import timm
import timm.optim
import timm.scheduler
import timm.utils
import torch
from tiny import digest

net = timm.create_model("resnet10t", pretrained=False, num_classes=2, in_chans=1)
optimizer = timm.optim.create_optimizer_v2(net, opt="lamb", lr=0.01)
ema = timm.utils.ModelEmaV3(net, decay=0.9)
schedule = timm.scheduler.CosineLRScheduler(optimizer, t_initial=3)
for number in range(4):
    optimizer.zero_grad()
    net(torch.randn(2, 1, 32, 32)).square().mean().backward()
    optimizer.step()
    ema.update(net)
    schedule.step(number + 1)
digest(net, ema)
