"""Trains, and says which ``sitecustomize`` it has."""

import os
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    import sitecustomize

    print(
        Path(sitecustomize.__file__).parent.name,
        os.environ["CUSTOMIZED"],
        sitecustomize.__doc__,
        flush=True,
    )
    if len(sys.argv) > 1:
        sys.exit(subprocess.run([sys.executable, __file__]).returncode)
    import counted

    counted.train("one")
