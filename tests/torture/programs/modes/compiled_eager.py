"""torch.compile with the eager backend: graphs, breaks and recompilations are counted."""

import torch
from tiny import digest, loader, network, sgd, step

graphs = []


def backend(graph, examples):
    graphs.append(len(graph.graph.nodes))
    return graph.forward


net = network()
optimizer = sgd(net)
compiled = torch.compile(net, backend=backend)
for x in loader():
    print(step(compiled, optimizer, x))
for size in (3, 2):
    print(step(compiled, optimizer, x[:size]))
print(
    graphs,
    dict(torch._dynamo.utils.counters["frames"]),
    dict(torch._dynamo.utils.counters["graph_break"]),
)
digest(net)
