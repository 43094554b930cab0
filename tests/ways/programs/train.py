"""One training in one process."""

import sys

import counted

if __name__ == "__main__":
    name, steps = sys.argv[1:] or ("one", "6")
    counted.train(name, steps=int(steps))
