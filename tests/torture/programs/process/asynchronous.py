"""The training is a coroutine: batches come from an async generator, checkpoints are written in an
executor.
"""

import asyncio

import torch
from tiny import digest, loader, network, sgd, step


async def batches():
    for x in loader(num_workers=1):
        await asyncio.sleep(0)
        yield x


async def main():
    net = network()
    optimizer = sgd(net)
    saving = []
    async for x in batches():
        step(net, optimizer, x)
        state = {name: p.clone() for name, p in net.state_dict().items()}
        saving.append(asyncio.get_running_loop().run_in_executor(None, torch.save, state, "net.pt"))
        await saving[-1]
    digest(net)


asyncio.run(main())
