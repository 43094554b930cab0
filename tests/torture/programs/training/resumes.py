"""It stops in mid-epoch, saves everything including the random states, and continues from the
files; all steps must be the same.
"""

import os
import pickle
import random

import torch
from tiny import digest, loader, network, step

net = network()
optimizer = torch.optim.AdamW(net.parameters())
for number, x in enumerate(loader(generator=torch.Generator().manual_seed(3))):
    if number == 4:
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(state, "whole.pt")
        with open("state.pickle", "wb") as file:
            pickle.dump((net, optimizer, random.getstate()), file)
    step(net, optimizer, x)
digest(net)
with open("state.pickle", "rb") as file:
    net, optimizer, state = pickle.load(file)
os.remove("state.pickle")  # it holds addresses
random.setstate(state)
state = torch.load("whole.pt")
net.load_state_dict(state["net"])
optimizer.load_state_dict(state["optimizer"])
torch.set_rng_state(state["rng"])
for number, x in enumerate(loader(generator=torch.Generator().manual_seed(3))):
    if number >= 4:
        step(net, optimizer, x)
digest(net)
