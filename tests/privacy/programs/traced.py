"""A few steps under torch.profiler, with the files and lines of its functions.

Argument 1: the trace.
"""

import sys

import torch


def step(model: torch.nn.Module) -> None:
    model(torch.rand(4, 8)).sum().backward()


if __name__ == "__main__":
    del sys.path[0]  # what is below one of its folders has a relative name in the trace
    network = torch.nn.Linear(8, 8)
    with torch.profiler.profile(with_stack=True, record_shapes=True) as profiler:
        for _ in range(3):
            step(network)
            profiler.step()
    profiler.export_chrome_trace(sys.argv[1])
