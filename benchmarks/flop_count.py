"""What counting the operations of one step costs that step (profiler/taps/flops.py), beside the
same step uncounted.

python benchmarks/flop_count.py [-o flop_count.json]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from twins import Estimate, in_turns, table, write_json

from feedline.profiler.taps.flops import FlopCounter, _flop_kernels

ROUNDS = 15


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    from torchvision.models import resnet18

    return resnet18(num_classes=10), torch.randn(4, 3, 64, 64)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(4, 32, 128)


def layers() -> tuple[nn.Module, torch.Tensor]:
    """Nothing but small matrix products: the worst there is."""
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(200))), torch.randn(4, 16)


def measure(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> tuple[Estimate, Estimate, int]:
    """Milliseconds of a step; milliseconds that counting adds to one, the first making of the
    kernels aside; operators counted.
    """
    model, inputs = make()
    noted = 0

    def step(how: str) -> float:
        nonlocal noted
        begin = time.perf_counter()
        if how == "plain":
            model(inputs).square().mean().backward()
        else:
            counter = FlopCounter()
            output = counter.call(model, inputs)
            counter.call(output.square().mean().backward)
            noted = len(_flop_kernels.noted or ())
            counter.take()
            counter.close()
        return 1e3 * (time.perf_counter() - begin)

    step("plain"), step("counted")
    rounds = list(in_turns(["plain", "counted"], step, ROUNDS))
    return (
        Estimate.of([r["plain"] for r in rounds]),
        Estimate.of([r["counted"] - r["plain"] for r in rounds]),
        noted,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, found = [["model", "operators", "step, ms", "counting adds, ms", "us an operator"]], {}
    for make in (resnet18, transformer, layers):
        plain, added, noted = measure(make)
        rows.append(
            [
                make.__name__,
                str(noted),
                plain.text(),
                added.text(),
                f"{1e3 * added.median / noted:.0f}",
            ]
        )
        found[make.__name__] = {
            "plain_ms": plain.median,
            "added_ms": added.median,
            "operators": noted,
        }
    print(table(rows))
    write_json(args.output, found=found)


if __name__ == "__main__":
    main()
