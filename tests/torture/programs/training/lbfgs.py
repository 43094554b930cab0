"""LBFGS calls its closure several times in one step."""

import torch
from tiny import digest, loader, network

net = network()
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
for x in loader(batch_size=16):

    def closure(x=x):
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        return loss

    print(float(optimizer.step(closure)))
digest(net)
