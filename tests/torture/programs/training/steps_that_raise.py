"""Forwards, losses, backwards and updates raise now and then, and the training continues."""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)


def fail(*_):
    raise RuntimeError("now and then")


def skip(*_):
    raise StopIteration("in a hook")


for number, x in enumerate(loader(batch_size=2)):
    handles = []
    if number % 5 == 1:
        handles.append(net[1].register_forward_hook(fail))
    if number % 5 == 2:
        handles.append(net[0].weight.register_hook(fail))
    if number % 5 == 3:
        handles.append(optimizer.register_step_pre_hook(skip))
    try:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(
            net(x), x[:, :1] if number % 5 != 4 else "no tensor"
        ).backward()
        optimizer.step()
    except (RuntimeError, StopIteration, AttributeError) as error:
        print(number, type(error).__name__, str(error).splitlines()[0])
    for handle in handles:
        handle.remove()
digest(net)
