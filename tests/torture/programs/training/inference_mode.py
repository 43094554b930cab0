"""Evaluation in inference_mode between updates; what it made is refused by autograd, in the same
words.
"""

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
    with torch.inference_mode():
        made = net(x)
    try:
        (made * net(x)).sum().backward()
    except RuntimeError as error:
        print(error)
digest(net)
