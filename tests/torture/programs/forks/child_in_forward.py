"""A fork inside a forward and inside a backward; the child trains, and ends by an exception through
the frames of both.
"""

import os
import sys

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
parent = os.getpid()


def fork(*_):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        raise KeyError("child")
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


for number, x in enumerate(loader(batch_size=8)):
    hook = (
        net[1].register_forward_hook(fork)
        if number == 1
        else net[0].register_full_backward_hook(fork)
        if number == 2
        else None
    )
    try:
        step(net, optimizer, x)
    except KeyError:
        assert os.getpid() != parent
        print(step(network(), sgd(network()), x) != 0, flush=True)
        os._exit(4)
    if hook:
        hook.remove()
digest(net)
