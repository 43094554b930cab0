"""SIGCHLD is ignored: the kernel reaps every child, and no exit code is known."""

import signal
import subprocess
import sys

from tiny import digest, train

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(subprocess.run([sys.executable, "-S", "-c", "import sys; sys.exit(3)"]).returncode)
digest(train())
