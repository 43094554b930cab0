"""Ghost batch norm against the loop over the ghosts that it equals, and against batch norm of the whole batch: forward and backward.

    python benchmarks/ghost_batchnorm.py --rounds 15 --json ghosts.json

Each round times all of them on the same tensors, in an order that swaps; the ratios are medians over rounds. Times are CPU seconds, which
hold on a machine that others use too, and by default of one thread.
"""

import argparse
import copy
import time
from pathlib import Path

import torch
from torch import nn
from twins import Estimate, in_turns, table, write_json

from feedline.convergence.fixes import ghost_bn
from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm

#: (shape, ghost, layout): the acceptance table's, a ResNet's on 32 pixels from first to last stage,
#: a multilayer perceptron's.
CASES = [
    ((256, 25, 18), 32, "contiguous"),
    ((256, 64, 32, 32), 32, "contiguous"),
    ((256, 64, 32, 32), 32, "channels last"),
    ((256, 128, 16, 16), 32, "contiguous"),
    ((256, 256, 8, 8), 32, "channels last"),
    ((256, 512, 4, 4), 32, "contiguous"),
    ((1024, 64, 4, 4), 16, "contiguous"),
    ((2048, 64), 32, "contiguous"),
    ((4096, 256), 32, "contiguous"),
]
NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}
WAYS = ["loop", "ghost", "whole"]


def measure(
    shape: tuple[int, ...], ghost: int, layout: str, rounds: int, together_below: int | None
) -> dict[str, list[float]]:
    """CPU seconds of a forward and a backward, by way, round by round."""
    if together_below is not None:
        ghost_bn.TOGETHER_BELOW = together_below
    norm = NORMS[len(shape)](shape[1])
    ghosted = convert_ghost_batchnorm(copy.deepcopy(norm), ghost)
    x = torch.randn(shape)
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    grad = torch.randn_like(x)
    forwards = {
        "loop": lambda x: torch.cat([norm(part) for part in x.split(ghost)]),
        "ghost": ghosted,
        "whole": norm,
    }
    repeats = max(1, int(1e6 / x.numel()))

    def once(way: str) -> float:
        started = time.process_time()
        for _ in range(repeats):
            forwards[way](x.detach().requires_grad_()).backward(grad)
        return (time.process_time() - started) / repeats

    for way in WAYS:
        once(way)
    found = list(in_turns(WAYS, once, rounds))
    return {way: [each[way] for each in found] for way in WAYS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--together-below",
        type=int,
        help="elements of a ghost below which all are done together; the library's own without it",
    )
    parser.add_argument(
        "--cases", type=int, nargs="*", default=range(len(CASES)), help="numbers of some of them"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, kept = (
        [
            [
                "shape",
                "ghost",
                "layout",
                "loop, ms",
                "ghost norm, ms",
                "loop / ghost norm",
                "ghost norm / batch norm",
            ]
        ],
        [],
    )
    for shape, ghost, layout in (CASES[number] for number in args.cases):
        found = measure(shape, ghost, layout, args.rounds, args.together_below)
        faster = Estimate.of([loop / ours for loop, ours in zip(found["loop"], found["ghost"])])
        dearer = Estimate.of([ours / whole for ours, whole in zip(found["ghost"], found["whole"])])
        times = [f"{1e3 * Estimate.of(found[way]).median:.2f}" for way in ("loop", "ghost")]
        rows.append([str(shape), str(ghost), layout, *times, faster.text(), dearer.text()])
        kept.append({"shape": shape, "ghost": ghost, "layout": layout, "seconds": found})
    print(table(rows))
    write_json(args.json, threads=args.threads, cases=kept)


if __name__ == "__main__":
    main()
