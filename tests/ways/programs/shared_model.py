"""Two processes train one model in shared memory, as in mnist_hogwild of pytorch/examples."""

import counted
import torch.multiprocessing as mp

if __name__ == "__main__":
    net = counted.network()
    net.share_memory()
    started = [
        mp.Process(target=counted.train, args=(name, net), kwargs={"steps": steps})
        for name, steps in (("a", 6), ("b", 9))
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
