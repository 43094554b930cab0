"""It reads its orders from standard input, in the training process and not in its workers."""

import sys

from tiny import digest, loader, network, train

net = network()
print(sys.stdin.isatty(), input("how many epochs? "))
for line in sys.stdin:
    print("got", line.strip())
    train(net, loader(num_workers=1))
print(repr(sys.stdin.read()))
digest(net)
