"""Starts two trainings, each in a process of its own."""

import subprocess
import sys

for rate in ("0.1", "0.2"):
    subprocess.run([sys.executable, "train_small.py", rate], check=True)
