"""A training that keeps the GPU busy and its own account of it, for scripts/gpu-check. Knows nothing of feedline. Prints JSON.

--sync waits for the GPU around every stage, so that the account holds what the GPU took; --compile compiles the model in that mode.
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
    """Seconds of each stage; of the GPU where it is waited for."""

    def __init__(self, wait: bool) -> None:
        self.wait, self.seconds = wait, defaultdict(list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self.wait:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        yield
        if self.wait:
            torch.cuda.synchronize()
        self.seconds[name].append(time.perf_counter() - begin)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sync", action="store_true")
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
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(args.width, args.width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    run = torch.compile(model, mode=args.compile) if args.compile else model
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    account = Account(args.sync)
    loader = DataLoader(Batches(args.steps, args.rows, args.width), batch_size=None, pin_memory=device.type == "cuda")
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
    digest = hashlib.sha256(b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())).hexdigest()
    means = {name: sum(values[1:]) / len(values[1:]) for name, values in account.seconds.items()}  # feedline leaves out the first, too
    print(json.dumps({"loss": final, "digest": digest, "stages": means, "wall_s": wall, "copy_bytes": args.rows * args.width * 4}))


if __name__ == "__main__":
    main()
