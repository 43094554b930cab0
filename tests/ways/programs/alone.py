"""One training, in an interpreter that may leave out this folder and the installed packages: the
arguments name both.
"""

import sys

if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    sys.path[:0] = paths
    import counted

    counted.train(name)
