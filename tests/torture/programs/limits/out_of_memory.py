"""It allocates more address space than its limit allows, catches MemoryError and torch's error, and
continues to train.
"""

import resource

import torch
from tiny import digest, network, train

net = train(network())
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, resource.RLIM_INFINITY))
for make in (lambda: bytearray(2**32), lambda: torch.empty(2**32)):
    try:
        make()
    except (MemoryError, RuntimeError) as error:
        print(type(error).__name__)
digest(train(net))
