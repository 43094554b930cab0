"""What autograd saves goes through hooks: packed, unpacked, kept on the CPU, refused."""

from tiny import digest, loader, network, sgd, step
from torch.autograd import graph

net = network()
optimizer = sgd(net)
counts = [0, 0]


def pack(x):
    counts[0] += 1
    return x.double()


def unpack(x):
    counts[1] += 1
    return x.float()


for x in loader():
    with graph.saved_tensors_hooks(pack, unpack):
        step(net, optimizer, x)
    with graph.save_on_cpu():
        step(net, optimizer, x)
    with graph.disable_saved_tensors_hooks("not here"):
        step(net, optimizer, x)
print(counts)
digest(net)
