"""torchdata's StatefulDataLoader: its state is saved in mid-epoch, and another loader continues
from there.
"""

import torch
from tiny import Numbers, digest, network, sgd, step
from torchdata.stateful_dataloader import StatefulDataLoader


def make():
    return StatefulDataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2)


net = network()
optimizer = sgd(net)
batches = make()
for number, x in enumerate(batches):
    step(net, optimizer, x)
    if number == 3:
        torch.save(batches.state_dict(), "loader.pt")
        break
again = make()
again.load_state_dict(torch.load("loader.pt", weights_only=False))
for x in again:
    print(step(net, optimizer, x))
digest(net)
import os  # noqa: E402

os.remove("loader.pt")
