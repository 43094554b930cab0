"""The file of sampled stacks in a rank's folder, as far as its writer needs to know it.

stacks_reader.py beside it describes it.
"""

from pathlib import Path

LOG = "stacks.log"
MAIN = "main"
MAGIC, SCHEMA = "feedline-stacks", 1
MOST_WRITTEN = 16 << 20  # bytes after which nothing more is sampled


def helper_of(log: Path) -> int:
    """Return the pid of the helper that writes a log; 0: it has not begun.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except FileNotFoundError:
        return 0
    return int(words[2]) if len(words) == 3 and words[2].isdecimal() else 0
