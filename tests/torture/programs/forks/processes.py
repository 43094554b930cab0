"""multiprocessing.Process by every method trains in the child; daemons, exit codes, queues and a Manager."""

import multiprocessing
import sys

from tiny import digest, network, train


def work(queue, shared):
    train(network())
    shared["trained"] = True
    queue.put("done")
    sys.exit(6)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Manager() as manager:
        queue, shared = context.Queue(), manager.dict()
        for daemon in (False, True):
            process = context.Process(target=work, args=(queue, shared), daemon=daemon)
            process.start()
            print(queue.get())
            process.join()
            print(process.exitcode, dict(shared))
    digest(train())
