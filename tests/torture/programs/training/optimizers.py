"""All of torch's ways to run one update: for loop, foreach, fused, maximize, capturable states,
decoupled decay.
"""

import torch
from tiny import digest, network, train

for settings in (
    {"foreach": False},
    {"foreach": True},
    {"fused": True},
    {"maximize": True},
    {"amsgrad": True},
):
    net = network()
    train(net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01, **settings))
    digest(net)
for kind in (
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.ASGD,
    torch.optim.NAdam,
    torch.optim.Adafactor,
):
    net = network()
    train(net, optimizer=kind(net.parameters(), lr=0.01))
    digest(net)
