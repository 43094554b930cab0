"""A timer fires a thousand times a second through the whole training, in Python's and in torch's
code.
"""

import signal

from tiny import digest, loader, network, sgd, step

fired = []
signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
net = network()
optimizer = sgd(net)
for _ in range(20):
    for x in loader():
        step(net, optimizer, x)
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(fired) > 10)
digest(net)
