"""A training without workers on a machine that lacks something."""

from tiny import digest, network, train

digest(train(train(network())))
