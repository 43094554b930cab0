"""A small training on a stream of one of ten libraries, which counts its own samples.

stream_training.py LIBRARY healthy|same|starved FOLDER [--write]

It is started once for each rank, with torchrun's variables, where a library splits its data between
ranks. FOLDER has the library's files, written by a call with --write. The counts go to the file
that STREAM_COUNTS names: samples of this rank, and different samples of all.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from stream_sources import CASES, HEALTHY, SOURCES, rank_and_ranks
from torch.nn.parallel import DistributedDataParallel

COUNTS = "STREAM_COUNTS"
#: Seconds that an accelerator computes for: so long that even on a busy machine handing a batch over
#: hides behind it, where nothing is wrong.
STEP_S, HEALTHY_STEP_S = 0.020, 0.050


def train(batches, step_s: float) -> list[int]:
    """Train for a pass; return the numbers of its samples."""
    model = torch.nn.Linear(4, 1)
    model.register_forward_hook(lambda *_: time.sleep(step_s))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer, numbers = torch.optim.SGD(model.parameters(), 1e-6), []
    for batch in batches:
        numbers += [int(number) for number in batch["number"]]
        inputs = torch.nn.functional.normalize(torch.as_tensor(batch["x"]))
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def different(numbers: list[int]) -> int:
    """Count the different samples that all ranks have seen."""
    of_ranks = [numbers]
    if dist.is_initialized():
        of_ranks = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(of_ranks, numbers)
    return len(set().union(*of_ranks))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=SOURCES)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    _, write, source = SOURCES[given.library]
    if given.write:
        given.folder.mkdir(parents=True, exist_ok=True)
        write(given.folder)
        sys.exit()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if rank_and_ranks()[1] > 1:
        dist.init_process_group("gloo")
    step_s = HEALTHY_STEP_S if given.case == HEALTHY else STEP_S
    numbers = train(source(given.case, given.folder), step_s)
    counts = {"samples": len(numbers), "different": different(numbers)}
    with contextlib.suppress(KeyError):
        Path(os.environ[COUNTS]).write_text(json.dumps(counts))
    print(json.dumps(counts))
    if dist.is_initialized():
        dist.destroy_process_group()
