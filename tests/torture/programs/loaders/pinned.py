"""pin_memory without a GPU, which warns, with a batch type of its own."""

import torch
from tiny import Numbers, digest, network, sgd, step


class Batch:
    def __init__(self, samples):
        self.x = torch.stack(samples)

    def pin_memory(self):
        print("pinned")
        return self


net = network()
optimizer = sgd(net)
for workers in (0, 1):
    for batch in torch.utils.data.DataLoader(
        Numbers(8), batch_size=4, num_workers=workers, collate_fn=Batch, pin_memory=True
    ):
        step(net, optimizer, batch.x)
digest(net)
