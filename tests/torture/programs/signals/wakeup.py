"""signal.set_wakeup_fd wakes a select loop with a training in it."""

import os
import select
import signal

from tiny import digest, loader, network, sgd, step

reader, writer = os.pipe2(os.O_NONBLOCK)
print(signal.set_wakeup_fd(writer))
signal.signal(signal.SIGUSR1, lambda *_: None)
net = network()
optimizer = sgd(net)
for x in loader():
    os.kill(os.getpid(), signal.SIGUSR1)
    select.select([reader], [], [])
    print(os.read(reader, 10) == bytes([signal.SIGUSR1]), step(net, optimizer, x))
digest(net)
