"""detect_anomaly names the operation that made a NaN."""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
with torch.autograd.detect_anomaly():
    for number, x in enumerate(loader()):
        optimizer.zero_grad()
        try:
            (net(x) * (float("nan") if number == 2 else 1)).sqrt().sum().backward()
        except RuntimeError as error:
            print(error)
            continue
        optimizer.step()
digest(net)
