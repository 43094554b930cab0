"""A TorchFunctionMode of the user's own counts the calls into torch of every step."""

from collections import Counter

from tiny import digest, loader, network, sgd, step
from torch.overrides import TorchFunctionMode

counts = Counter()


class Count(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        counts[getattr(function, "__name__", str(function))] += 1
        return function(*args, **(kwargs or {}))


net = network()
optimizer = sgd(net)
with Count():
    for x in loader():
        step(net, optimizer, x)
        print(counts.total())
print(sorted(counts.items()))
digest(net)
