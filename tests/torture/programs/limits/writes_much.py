"""It writes files of its own up to the limit, and past it; the error is the program's to handle."""

import signal

from tiny import digest, loader, network, sgd, step

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
net = network()
optimizer = sgd(net)
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    try:
        with open(f"file{number}", "wb") as file:
            file.write(bytes(number * 20_000))
    except OSError as error:
        print(number, error.strerror)
digest(net)
