"""os.closerange in mid-training; the program's own files then get those descriptor numbers, and
must stay intact.
"""

import os

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for number, x in enumerate(loader(batch_size=2)):
    if number == 3:
        os.closerange(3, 4096)
        files = [os.open(f"own{n}", os.O_RDWR | os.O_CREAT) for n in range(40)]
    step(net, optimizer, x)
    if number > 3:
        for descriptor in files:
            os.write(descriptor, b"%d\n" % number)
for _ in range(100):
    for x in loader(batch_size=2):
        step(net, optimizer, x)
for descriptor in files:
    os.fsync(descriptor)
print([os.fstat(descriptor).st_size for descriptor in files])
digest(net)
