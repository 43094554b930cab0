"""os.register_at_fork handlers and atexit handlers of parent and children, in their order."""

import atexit
import multiprocessing
import os
import sys

from tiny import digest, train

os.register_at_fork(
    before=lambda: print("before", flush=True),
    after_in_child=lambda: print("child", flush=True),
    after_in_parent=lambda: print("parent", flush=True) if False else None,
)
atexit.register(print, "at exit", flush=True)
if __name__ == "__main__":
    digest(train())
    process = multiprocessing.get_context("fork").Process(target=print, args=("working",))
    process.start()
    process.join()
    pid = os.fork()
    if pid == 0:
        sys.exit()
    os.waitpid(pid, 0)
