"""The default type is float64, and for a while the default device is meta."""

import torch
from tiny import digest, network, sgd, step

torch.set_default_dtype(torch.float64)
net = network()
optimizer = sgd(net)
for _ in range(6):
    print(step(net, optimizer, torch.randn(4, 4)))
torch.set_default_device("meta")
ghost = network()
print(ghost(torch.randn(4, 4)).shape, step.__name__)
torch.set_default_device(None)
with torch.device("cpu"):
    digest(net)
