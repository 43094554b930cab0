"""Its standard streams are replaced in mid-training: closed, None, a StringIO, descriptors 1 and 2
given to a file.
"""

import io
import os
import sys

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
kept = os.dup(1)
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    if number == 1:
        sys.stdout, old = io.StringIO(), sys.stdout
        print("caught")
        caught, sys.stdout = sys.stdout.getvalue(), old
    if number == 2:
        sys.stderr = None
    if number == 3:
        sys.stdout.flush()
        file = os.open("log", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        print("to a file", flush=True)
    if number == 4:
        sys.stdin.close()
os.dup2(kept, 1)
print(caught, end="")
digest(net)
