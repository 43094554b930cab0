"""A program of somebody else's that holds CPUs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: It ends with its parent, should that be killed.
LOOP = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, [int(sys.argv[1])])
while os.getppid() == parent: sum(range(10_000))
"""


@contextmanager
def busy(*cpus: int) -> Iterator[None]:
    """Keep each of these CPUs busy with a loop of its own."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(cpu)]) for cpu in cpus]
    try:
        yield
    finally:
        for loop in loops:
            loop.send_signal(signal.SIGKILL)
            loop.wait()


def allowed(count: int) -> list[int]:
    """Numbers of the first CPUs that this process may use: those that a program with ``cpus=count``
    gets (warm_python.py).
    """
    return sorted(os.sched_getaffinity(0))[:count]
