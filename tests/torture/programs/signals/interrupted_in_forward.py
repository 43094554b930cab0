"""SIGINT comes inside a module's forward, inside backward and inside a loader's wait, and is caught
each time.
"""

import os
import signal
import time

import torch
from tiny import Numbers, digest, network, sgd, step


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


class Slow(Numbers):
    def __getitem__(self, index):
        time.sleep(0.3)
        return super().__getitem__(index)


def begin(_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)


net = network()
optimizer = sgd(net)
for x in torch.ones(6, 2, 4):
    handle = net[1].register_forward_hook(interrupt)
    try:
        step(net, optimizer, x)
    except KeyboardInterrupt:
        print("in forward")
    handle.remove()
    handle = net[0].weight.register_hook(interrupt)
    try:
        step(net, optimizer, x)
    except KeyboardInterrupt:
        print("in backward")
    handle.remove()
    step(net, optimizer, x)
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.15)
try:
    for _ in torch.utils.data.DataLoader(Slow(2), num_workers=1, worker_init_fn=begin):
        print("batch")
except KeyboardInterrupt:
    print("in a wait")
for _ in range(3):
    print(step(net, optimizer, x))
digest(net)
