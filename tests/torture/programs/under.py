"""Sets limits, mounts and masks for the program that follows, and becomes it: ``under.py SHELL
LIMIT=N... -- [-m] PROGRAM ARGS``.

Lies beside every program when it runs. SHELL, if there is one, runs with mounts of its own, which
the program then has.
"""

import ctypes
import os
import resource
import runpy
import subprocess
import sys

CLONE_NEWNS = 0x20000


def own_mounts(shell):
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mounts of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["sh", "-ec", shell], check=True)


def limit(name, value):
    if name == "UMASK":
        os.umask(value)
    else:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def become(words):
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        runpy.run_path(words[0], run_name="__main__")


end = sys.argv.index("--")
if sys.argv[1]:
    own_mounts(sys.argv[1])
for part in sys.argv[2:end]:
    limit(part.partition("=")[0], int(part.partition("=")[2], 0))
become(sys.argv[end + 1 :])
