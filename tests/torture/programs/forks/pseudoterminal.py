"""pty.fork: the child trains on a terminal of its own, and the parent reads what it says."""

import os
import pty
import random
import sys

from tiny import digest, train

pid, terminal = pty.fork()
if pid == 0:
    print(sys.stdout.isatty(), sys.stdin.isatty())
    random.seed(1)  # Python has seeded it
    digest(train())
    sys.exit(9)
said = b""
try:
    while data := os.read(terminal, 1000):
        said += data
except OSError:
    pass
print(said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
digest(train())
