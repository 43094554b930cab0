"""An unhandled alarm ends it by SIGALRM."""

import signal
import time

from tiny import digest, train

digest(train())
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(5)
