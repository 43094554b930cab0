"""A TorchDispatchMode of the user's own counts the operators of every step."""

from collections import Counter

from tiny import digest, loader, network, sgd, step
from torch.utils._python_dispatch import TorchDispatchMode

counts = Counter()


class Count(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


net = network()
optimizer = sgd(net)
with Count():
    for x in loader():
        step(net, optimizer, x)
        print(counts.total())
print(sorted(counts.items()))
digest(net)
