"""torch._dynamo.explain counts graphs and breaks of a model between steps."""

import torch
from tiny import digest, network, train

net = train(network())
explained = torch._dynamo.explain(net)(torch.ones(2, 4))
print(explained.graph_count, explained.graph_break_count, explained.op_count)
digest(train(net))
