"""A script that starts two ranks by ``python -m torch.distributed.run``."""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    sys.exit(subprocess.run([*launcher, Path(__file__).with_name("ddp.py")]).returncode)
