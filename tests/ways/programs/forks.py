"""os.fork by hand: the child trains, then the parent does too."""

import os

import counted

if __name__ == "__main__":
    pid = os.fork()
    if pid == 0:
        counted.train("child", steps=6)
        os._exit(0)
    os.waitpid(pid, 0)
    counted.train("parent", steps=9)
