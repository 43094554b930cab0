"""subprocess runs a training script twice, as a sweep does."""

import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")

if __name__ == "__main__":
    for name, steps in (("first", 6), ("second", 9)):
        subprocess.run([sys.executable, TRAIN, name, str(steps)], check=True)
