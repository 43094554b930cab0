"""SIGTERM is handled as on preemptible clusters: save, print a message, exit with a special code."""

import os
import signal
import sys

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)


def stop(number, frame):
    torch.save(net.state_dict(), "last.pt")
    print("saved", signal.Signals(number).name, frame.f_code.co_name)
    digest(net)
    sys.exit(85)


signal.signal(signal.SIGTERM, stop)
for number, x in enumerate(loader(num_workers=1)):
    step(net, optimizer, x)
    if number == 5:
        os.kill(os.getpid(), signal.SIGTERM)
        print("never")
