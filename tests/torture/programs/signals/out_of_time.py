"""RLIMIT_CPU: SIGXCPU comes in the middle of a step, is handled, and the program exits 24."""

import resource
import signal
import sys
import time

from tiny import digest, train

digest(train())
signal.signal(signal.SIGXCPU, lambda *_: sys.exit(24))
resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1, resource.RLIM_INFINITY))
while True:
    train()
