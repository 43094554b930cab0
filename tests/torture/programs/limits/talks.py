"""It prints a line for each of many steps to a terminal, or to a pipe whose reader may be gone."""

import sys
import time

import torch
from tiny import digest, network, sgd, step

net = network()
optimizer = sgd(net)
digest(net)
for number in range(3000):
    step(net, optimizer, torch.ones(1, 4) * (number % 7))
    if number % 10 == 0:
        print("step", number, flush=len(sys.argv) == 1)
    if len(sys.argv) > 1 and number == 2000:
        sys.stdout.flush()
        time.sleep(60)
digest(net)
