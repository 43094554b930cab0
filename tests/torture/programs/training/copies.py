"""Networks and optimizers are copied, pickled and reloaded between steps."""

import copy
import io
import pickle

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
    net, optimizer = copy.deepcopy((net, optimizer))
    net, optimizer = pickle.loads(pickle.dumps((net, optimizer)))
    buffer = io.BytesIO()
    torch.save([net, optimizer], buffer)
    net, optimizer = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    print(len(buffer.getvalue()), len(optimizer.state))
digest(net)
