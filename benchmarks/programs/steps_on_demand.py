"""A training that makes as many steps as each line of its standard input says, and answers with how
long they took: CPU and wall seconds.

Two Linear layers and tensors in memory, one thread: ``steps_on_demand.py WIDTH BATCH [DEVICE]``. A
GPU is waited for after the last step.
"""

import sys
import time

import torch
from torch import nn


def main() -> None:
    width, batch = int(sys.argv[1]), int(sys.argv[2])
    device = torch.device(sys.argv[3] if sys.argv[3:] else "cpu")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(device)
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
    inputs, labels = (
        torch.randn(batch, width, device=device),
        torch.randint(0, 10, (batch,), device=device),
    )
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(time.process_time() - cpu, time.perf_counter() - wall, flush=True)


if __name__ == "__main__":
    main()
