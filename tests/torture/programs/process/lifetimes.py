"""Batches, losses, networks and loaders are freed as soon as the program no longer refers to them."""

import gc
import sys
import weakref

from tiny import digest, loader, network, sgd, step

gc.disable()
net = network()
optimizer = sgd(net)
batches = loader(num_workers=1)
for x in batches:
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    probes = weakref.ref(x), weakref.ref(loss)
    print(sys.getrefcount(x), sys.getrefcount(loss), sys.getrefcount(net), end=" ")
    del x, loss
    print([probe() is None for probe in probes])
for make in (network, lambda: sgd(network()), loader, lambda: iter(loader())):
    thing = make()
    probe = weakref.ref(thing)
    del thing
    gc.collect()
    print(probe() is None)
step(net, optimizer, next(iter(loader())))
digest(net)
