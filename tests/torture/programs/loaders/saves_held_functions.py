"""A model, a dataset and a transform that hold Tensor.to, torch.save and Module.__call__ are saved
by torch.save and cloudpickle.
"""

import io

import cloudpickle
import torch
from tiny import digest, network, train


class Holder:
    def __init__(self):
        self.held = [torch.Tensor.to, torch.Tensor.cuda, torch.save, torch.nn.Module.__call__]


net = train(network())
net.holder, net.mover = Holder(), torch.Tensor.to
torch.save(net, "net.pt")
again = torch.load("net.pt", weights_only=False)
print(again.holder.held[0] == torch.Tensor.to, again.mover == torch.Tensor.to)
move, call = torch.Tensor.to, torch.nn.Module.__call__
data = cloudpickle.dumps(lambda x: call(network(), move(x, torch.float32)))
print(cloudpickle.loads(data)(torch.ones(1, 4)).shape)
buffer = io.BytesIO()
torch.save({"save": torch.save}, buffer)
digest(net)
