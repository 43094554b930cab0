"""os.execv: trains, then becomes another training. Both have one pid."""

import os
import sys
from pathlib import Path

import counted

if __name__ == "__main__":
    counted.train("before", steps=6)
    os.execv(
        sys.executable, [sys.executable, str(Path(__file__).with_name("train.py")), "after", "9"]
    )
