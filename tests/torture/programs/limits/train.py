"""A training with a worker on a machine that lacks something."""

from tiny import digest, loader, network, train

net = train(network(), loader(num_workers=1))
digest(train(net, loader()))
