"""What the events around stages cost the host, for scripts/gpu-check: blocks of steps with and
without them, in turns. Prints JSON.

A small model, so that the host is what limits; the recorder is on all the time and neither rests
nor leaves steps unmarked, and only the timer of the GPU is taken away and put back.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import feedline
from feedline.profiler.record.recorder import recorder

BLOCK, PAIRS = 100, 20


def block(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor
) -> tuple[float, float]:
    """(CPU, wall) microseconds a step, the GPU waited for at the end."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(BLOCK):
        loss = model(batch.to("cuda", non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    used = time.thread_time() - cpu
    torch.cuda.synchronize()
    return used / BLOCK * 1e6, (time.perf_counter() - wall) / BLOCK * 1e6


def main() -> None:
    os.environ["FEEDLINE_RESTS"] = "0"
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.randn(64, 64).pin_memory()
    differences, walls = [], []
    with tempfile.TemporaryDirectory() as folder, feedline.record(Path(folder) / "run"):
        timer = recorder.gpu
        if timer is None:
            sys.exit("no timer of the GPU was attached")
        timer._ration.next_step = lambda now: None  # every step is marked
        block(model, optimizer, batch)
        for _ in range(PAIRS):
            with_events = block(model, optimizer, batch)
            recorder.gpu = None
            without = block(model, optimizer, batch)
            recorder.gpu = timer
            differences.append(with_events[0] - without[0])
            walls.append(with_events[1] - without[1])
    cuts = statistics.quantiles(differences, n=20)
    print(
        json.dumps(
            {
                "cpu_us_per_step": statistics.median(differences),
                "cpu_us_per_step_5_to_95": [cuts[0], cuts[-1]],
                "wall_us_per_step": statistics.median(walls),
                "pairs": PAIRS,
                "steps_per_block": BLOCK,
            }
        )
    )


if __name__ == "__main__":
    main()
