"""A script under feedline starts feedline on another one, then trains itself."""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    feedline = (
        ["-m", "feedline", "run", "-q", "-o", str(Path(__file__).parent.parent / "inner")]
        if len(sys.argv) > 1
        else []
    )
    subprocess.run(
        [sys.executable, *feedline, Path(__file__).with_name("train.py"), "inner", "9"], check=True
    )
    import counted

    counted.train("outer")
