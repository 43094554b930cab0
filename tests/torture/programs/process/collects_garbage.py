"""The garbage collector is off, frozen, run by hand, watched by callbacks, and full of finalizers."""

import gc
import weakref

from tiny import digest, loader, network, sgd, step

gc.disable()
net = network()
optimizer = sgd(net)
seen, dead = [], []
gc.callbacks.append(lambda phase, info: seen.append(phase))
for number, x in enumerate(loader()):
    weakref.finalize(x, dead.append, number)
    step(net, optimizer, x)
    reference = weakref.ref(x)
    del x
    print(reference() is None)
gc.collect()
print(seen, dead, gc.garbage)
gc.freeze()
gc.enable()
print(gc.get_threshold(), len([o for o in gc.get_objects() if type(o).__name__ == "SGD"]))
probe = weakref.ref(net)
digest(net)
del net, optimizer
gc.unfreeze()
gc.collect()
print(probe() is None)
