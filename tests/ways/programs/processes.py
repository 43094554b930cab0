"""multiprocessing.Process starts two trainings that know nothing of each other, by the method that
is named.
"""

import sys

import counted
import torch.multiprocessing as mp

if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    started = [
        context.Process(target=counted.train, args=(name,), kwargs={"steps": steps})
        for name, steps in (("a", 6), ("b", 9))
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(sum(process.exitcode for process in started))
