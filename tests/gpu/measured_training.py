"""A training that keeps the GPU busy and its own account of it, for scripts/gpu-check. Knows
nothing of feedline. Prints JSON.

--sync waits for the GPU around every stage; --events marks each stage in the GPU's own work
instead, and waits for nothing until the end. --compile compiles the model in that mode.
"""

import argparse
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset):
    """Whole batches, always the same ones."""

    def __init__(self, count: int, rows: int, width: int) -> None:
        self.batches, self.count = [torch.randn(rows, width) for _ in range(2)], count

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.count):
            yield self.batches[index % len(self.batches)]


class Account:
    """Seconds of each stage: of the host, of the host that waits for the GPU, or of the GPU."""

    def __init__(self, wait: bool, events: bool) -> None:
        self.wait, self.events, self.seconds, self.marks = (
            wait,
            events,
            defaultdict(list),
            defaultdict(list),
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self.events:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            yield
            last.record()
            self.marks[name].append((first, last))
            return
        if self.wait:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        yield
        if self.wait:
            torch.cuda.synchronize()
        self.seconds[name].append(time.perf_counter() - begin)

    def close(self) -> None:
        """Read the marks. The GPU has passed all of them."""
        for name, marks in self.marks.items():
            self.seconds[name] = [first.elapsed_time(last) / 1000 for first, last in marks]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--compile", metavar="MODE")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=4096)
    return parser.parse_args()


def main() -> None:
    args = parse()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as torch's notes on reproducibility ask
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    device = torch.device(args.device)
    layers = [
        layer
        for _ in range(4)
        for layer in (torch.nn.Linear(args.width, args.width), torch.nn.ReLU())
    ]
    model = torch.nn.Sequential(*layers).to(device)
    run = torch.compile(model, mode=args.compile) if args.compile else model
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    account = Account(args.sync, args.events)
    loader = DataLoader(
        Batches(args.steps, args.rows, args.width),
        batch_size=None,
        pin_memory=device.type == "cuda",
    )
    begin = time.perf_counter()
    for images in loader:
        with account.stage("copy"):
            images = images.to(device, non_blocking=True)
        with account.stage("forward"):
            output = run(images)
        loss = output.square().mean()
        optimizer.zero_grad()
        with account.stage("backward"):
            loss.backward()
        with account.stage("optimizer"):
            optimizer.step()
    final = loss.item()
    wall = time.perf_counter() - begin
    if args.events:
        torch.cuda.synchronize()
        account.close()
    digest = hashlib.sha256(
        b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()
    means = {
        name: sum(values[1:]) / len(values[1:]) for name, values in account.seconds.items()
    }  # feedline leaves out the first, too
    found = {
        "loss": final,
        "digest": digest,
        "stages": means,
        "wall_s": wall,
        "copy_bytes": args.rows * args.width * 4,
    }
    print(json.dumps({**found, "series": account.seconds}))


if __name__ == "__main__":
    main()
