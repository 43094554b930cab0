"""Averages of weights (EMA, SWA with SWALR and update_bn) are kept during the training."""

import torch
from tiny import digest, loader, sgd, step
from torch.optim import swa_utils

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
optimizer = sgd(net)
ema = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
swa = swa_utils.AveragedModel(net)
schedule = swa_utils.SWALR(optimizer, swa_lr=0.05)
for x in loader():
    step(net, optimizer, x)
    ema.update_parameters(net)
    swa.update_parameters(net)
    schedule.step()
swa_utils.update_bn(loader(), swa)
digest(net, ema, swa)
