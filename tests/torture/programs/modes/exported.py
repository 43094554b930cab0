"""A network is exported (torch.export, AOT), saved, loaded and compared with the one that continues
to train.
"""

import torch
from tiny import digest, network, train

net = train(network())
exported = torch.export.export(net, (torch.ones(2, 4),))
print(exported.graph_module.code)
torch.export.save(exported, "net.pt2")
again = torch.export.load("net.pt2").module()
print(torch.equal(again(torch.ones(2, 4)), net(torch.ones(2, 4))))
digest(train(net))
import os  # noqa: E402

os.remove("net.pt2")  # a zip with times in it
