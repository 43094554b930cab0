"""Starts a training so that nothing of the parent's environment reaches it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = [HERE / "alone.py", "one", HERE, sysconfig.get_path("purelib")]

if __name__ == "__main__":
    how = sys.argv[1]
    environment = {
        "empty": {},
        "PYTHONPATH": {**os.environ, "PYTHONPATH": str(HERE / "elsewhere")},
    }.get(how, dict(os.environ))
    flags = [how] if how.startswith("-") else []
    sys.exit(subprocess.run([sys.executable, *flags, *CHILD], env=environment).returncode)
