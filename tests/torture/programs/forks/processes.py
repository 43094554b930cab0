"""A multiprocessing.Process of each start method trains; a daemon, exit codes, queues and a
Manager.
"""

import multiprocessing
import sys

from tiny import digest, network, train


def work(queue):
    train(network())
    queue.put("done")
    sys.exit(6)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with multiprocessing.get_context("fork").Manager() as manager:
        queue, shared = context.SimpleQueue(), manager.dict()
        process = context.Process(target=work, args=(queue,), daemon=sys.argv[1] == "fork")
        process.start()
        print(queue.get())
        process.join()
        shared["ended"] = process.exitcode
        print(dict(shared))
    digest(train())
