"""A tree of 64 processes, two of which import torch and train: seven children, eight below each."""

import subprocess
import sys

if __name__ == "__main__":
    level, number = int(sys.argv[1]), int(sys.argv[2])
    below = [number * 8 + child for child in range((7, 8, 0)[level])]
    started = [
        subprocess.Popen([sys.executable, __file__, str(level + 1), str(child)]) for child in below
    ]
    if level == 2 and number % 28 == 0:
        import counted

        counted.train(f"leaf{number}", steps=6 + number // 28)
    elif level == 2:
        sys.stdout.write(
            f"leaf {number}\n"
        )  # in one piece, also where PYTHONUNBUFFERED is set: 54 processes share the file
    sys.exit(sum(process.wait() for process in started))
