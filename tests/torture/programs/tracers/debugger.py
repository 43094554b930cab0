"""A debugger without a terminal (bdb) stops at a line of every step, and pdb reads its commands
from standard input.
"""

import bdb
import pdb
import sys

from tiny import digest, loader, network, sgd, step

stops = []


class Stops(bdb.Bdb):
    def user_line(self, frame):
        stops.append(frame.f_code.co_name)
        self.set_continue()


def steps():
    for x in loader():
        loss = step(net, optimizer, x)
    return loss


net = network()
optimizer = sgd(net)
debugger = Stops()
debugger.set_break(sys.modules["tiny"].__file__, step.__code__.co_firstlineno + 2)
print(debugger.runcall(steps), stops)
pdb.Pdb(stdin=sys.stdin, nosigint=True, readrc=False).runcall(steps)
digest(net)
