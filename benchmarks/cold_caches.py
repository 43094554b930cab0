"""How much longer Python code takes directly after a step, which has filled the caches with its
weights, than in a loop of its own.

python benchmarks/cold_caches.py
"""

import ast
import json
import statistics
import time

import torch
from step_cost import STEPS
from torch import nn
from twins import machine, table


def some_python_us() -> float:
    """CPU time of one fixed piece of work without a tensor."""
    begun = time.thread_time_ns()
    json.dumps({str(i): [i, i * 2.0] for i in range(20)})
    ast.parse("def f(a, b):\n    return [a + b for a in range(b)]\n")
    return (time.thread_time_ns() - begun) / 1e3


def after_steps(width: int, batch: int, steps: int) -> list[float]:
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(batch, width), torch.randint(0, 10, (batch,))
    found = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(some_python_us())
    return found


def main() -> None:
    torch.set_num_threads(1)
    alone = statistics.median([some_python_us() for _ in range(1000)][200:])
    rows = [["after", "CPU us", "of that in a loop"], ["itself", f"{alone:.0f}", "1.0"]]
    for name, (width, batch, _) in STEPS.items():
        took = statistics.median(after_steps(width, batch, 40))
        rows.append([f"a step of {name}", f"{took:.0f}", f"{took / alone:.1f}"])
    print(f"{machine()}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
