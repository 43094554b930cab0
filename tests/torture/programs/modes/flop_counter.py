"""The user's own FlopCounterMode is on in the step whose operations feedline counts."""

from tiny import digest, loader, network, sgd, step
from torch.utils.flop_counter import FlopCounterMode

net = network()
optimizer = sgd(net)
for x in loader():
    with FlopCounterMode(display=False) as counter:
        step(net, optimizer, x)
    print(counter.get_total_flops())
digest(net)
