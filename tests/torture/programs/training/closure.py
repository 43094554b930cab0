"""SGD is given a closure, and steps on what it returns."""

from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
for x in loader():

    def closure(x=x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    print(optimizer.step(closure).item())
digest(net)
