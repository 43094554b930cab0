"""Tensors are shared through the file system, and also come from the workers through the user's own
queues.
"""

import torch
import torch.multiprocessing as mp
from tiny import digest, loader, network, sgd, step


def produce(queue, done):
    for number in range(4):
        queue.put(torch.full((2, 4), float(number)))
    done.wait()


if __name__ == "__main__":
    mp.set_sharing_strategy("file_system")
    net = network()
    optimizer = sgd(net)
    for x in loader(num_workers=2):
        step(net, optimizer, x)
    for method in ("fork", "spawn"):
        context = mp.get_context(method)
        queue, done = context.Queue(), context.Event()
        process = context.Process(target=produce, args=(queue, done))
        process.start()
        for _ in range(4):
            print(step(net, optimizer, queue.get()))
        done.set()
        process.join()
    digest(net)
