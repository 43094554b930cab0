"""DataParallel without a GPU, and its loss inside."""

import torch
from tiny import digest, network, train

net = torch.nn.DataParallel(network())
digest(train(net))
