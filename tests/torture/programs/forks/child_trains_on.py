"""os.fork in the middle of an epoch: the child trains on to its end, and so does the parent."""

import os
import random

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
pid = None
for number, x in enumerate(loader()):
    if number == 3:
        pid = os.fork()
        random.seed(1)  # Python seeds it in the child
    step(net, optimizer, x if pid else -x)
if pid:
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
digest(net)
