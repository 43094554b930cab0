"""Says how it was started: name, arguments, path, flags, and what a child of it sees."""

import multiprocessing
import os
import sys


def child(queue):
    queue.put((__name__, sys.argv[:2], sys.flags.optimize))


if __name__ == "__main__":
    print(
        sys.argv[:20],
        len(sys.argv),
        __file__,
        __name__,
        __spec__ and __spec__.name,
        __package__,
        __doc__ and len(__doc__),
    )
    print(
        sys.path[0] in (os.getcwd(), os.path.dirname(os.path.realpath(__file__))),
        sys.flags,
        __debug__,
        __builtins__.__name__,
    )
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
