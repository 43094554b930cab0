"""importlib.reload of its own modules and of some of torch's in mid-training."""

import importlib
import sys

import tiny
import torch.optim.sgd
import torch.utils.data.dataloader
import torch.utils.data.dataset

net = tiny.train()
importlib.reload(tiny)
tiny.train(net)
importlib.reload(sys.modules["torch.optim.sgd"])
importlib.reload(torch.utils.data.dataset)
dataloader = importlib.reload(torch.utils.data.dataloader)
print(torch.utils.data.DataLoader is dataloader.DataLoader)
tiny.train(net, tiny.loader(num_workers=1))
tiny.train(net, dataloader.DataLoader(list(torch.ones(8, 4)), batch_size=4))
tiny.digest(net)
