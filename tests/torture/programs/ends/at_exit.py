"""atexit handlers that print, register more, unregister, raise and train; finalizers and __del__ at
the end, in their order.
"""

import atexit
import sys
import threading
import weakref

from tiny import digest, train


class Loud:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("del", self.name)


def more():
    print("more")
    atexit.register(print, "registered at exit")
    atexit.unregister(never)


def never():
    print("never")


def fails():
    raise ValueError("at exit")


def late():
    thread.join()
    print("thread", thread.is_alive())


kept, other = Loud("kept"), Loud("in a cycle")
other.itself = other
finalizer = weakref.finalize(kept, print, "finalized")
atexit.register(never)
atexit.register(more)
atexit.register(fails)
atexit.register(lambda: digest(train()))
thread = threading.Thread(target=lambda: (threading.main_thread().join(), print("after main")))
thread.start()
atexit.register(late)
sys.stderr.write("to the end\n")
digest(train())
