"""Steps run in generators and coroutines that pause between forward and backward; two of them
alternate.
"""

from tiny import digest, loader, network, sgd


def training(net):
    optimizer = sgd(net)
    for x in loader():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        yield
        loss.backward()
        yield
        optimizer.step()


nets = network(), network()
running = [training(net) for net in nets]
while running:
    for one in list(running):
        try:
            next(one)
        except StopIteration:
            running.remove(one)
unfinished = training(network())
next(unfinished)
digest(*nets)
