"""Two networks are trained in two threads at once, each with a loader, while the main thread waits."""

import threading

import torch
from tiny import Numbers, digest, network, sgd, step

nets = [network(), network()]


def work(net, scale):
    optimizer = sgd(net)
    generator = torch.Generator().manual_seed(scale)
    for _ in range(3):
        for x in torch.utils.data.DataLoader(
            Numbers(), batch_size=4, shuffle=True, generator=generator, num_workers=scale - 1
        ):
            step(net, optimizer, x * scale)


threads = [threading.Thread(target=work, args=(net, scale)) for scale, net in enumerate(nets, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
digest(*nets)
