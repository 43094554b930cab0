"""A network is trained with fake quantization, then converted and run with 8-bit integers."""

import warnings

import torch
from tiny import digest, loader, network, sgd, step

warnings.simplefilter("ignore")
fake = torch.ao.quantization.FakeQuantize.with_args(
    quant_min=0, quant_max=255, dtype=torch.quint8
)()
net = torch.nn.Sequential(fake, *network())
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x))
digest(net)
small = torch.ao.quantization.quantize_dynamic(net[1:], {torch.nn.Linear}, dtype=torch.qint8)
print(small(torch.ones(1, 4)).item())
