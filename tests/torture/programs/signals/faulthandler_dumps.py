"""faulthandler dumps all threads to a file on SIGUSR1, while it trains."""

import faulthandler
import os
import signal

from tiny import digest, loader, network, sgd, step

file = open("stacks", "w+")
faulthandler.enable(file)
faulthandler.register(signal.SIGUSR1, file)
faulthandler.dump_traceback_later(60, file=file)
net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
    os.kill(os.getpid(), signal.SIGUSR1)
faulthandler.cancel_dump_traceback_later()
file.seek(0)
text = file.read()
print("Current thread" in text)
os.remove("stacks")
digest(net)
