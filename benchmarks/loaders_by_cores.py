"""Which loader feeds which model with how many cores, and from where on the input is the limit no longer.

    python benchmarks/loaders_by_cores.py data/photos --cores 1,4,8,16 --models resnet18,resnet50 --json out.json

Every loader is measured with as many workers as it has cores (the process and all it starts are bound to them), every model alone on
batches in memory; a training with both gets the lowest of loader, model and shared cores (pipelines/compare/choice.py). Prints Markdown.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

import torch
from torchvision import models, transforms
from twins import machine, table, write_json

from feedline.pipelines.compare import loader_timing, side_by_side
from feedline.pipelines.compare.comparison_result import Compute, LoaderRow
from feedline.pipelines.compare.side_by_side import (
    ComparisonPlan,
    ComparisonRun,
    _check_epochs,
    _fill_page_cache,
    _run_rounds,
)
from feedline.pipelines.loaders import LOADERS
from feedline.pipelines.loaders.protocol import LoaderSettings, LoadTask
from feedline.pipelines.photos import scan
from feedline.pipelines.translate import recipe

LEFT_OUT = {
    "pillow-v1-uint8",
    "opencv-albu",
    "simplejpeg-albu",
}  # each differs little from one that is there


def task_of(data: Path, batch: int) -> LoadTask:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    steps = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ]
    transform = transforms.Compose(steps)
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    return LoadTask(
        scan(data), recipe.read_recipe(transform), LoaderSettings(batch, device=device), transform
    )


def with_cores(
    task: LoadTask, names: list[str], cores: int, plan: ComparisonPlan
) -> list[LoaderRow]:
    """These loaders, bound to the first so many CPUs.

    Their rates only: `feedline compare` checks images and times steps, too.
    """
    contest = ComparisonRun(
        replace(task, settings=replace(task.settings, workers=cores)), plan=plan
    )
    chosen = [kind for kind in contest.kinds if kind.name in names]
    rows = [
        LoaderRow(kind.name, kind.about, kind.refuses(task.settings.device) or "")
        for kind in chosen
    ]
    running = [(kind, row) for kind, row in zip(chosen, rows, strict=True) if not row.why]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        _fill_page_cache(task.photos)
        _check_epochs(contest, running)
        _run_rounds(contest, running)
        return rows
    finally:
        os.sched_setaffinity(0, before)


def cells(
    rows: list[LoaderRow], computes: dict[str, Compute], cores: int, device: str
) -> list[list[str]]:
    """A row of the table for each loader: its rate, and what each model gets with it."""
    made = []
    for row in rows:
        if not row.measured:
            made.append([str(cores), row.name, row.why, *[""] * (1 + len(computes))])
            continue
        fed = [
            side_by_side._predict_training_rate(row, compute, cores, device)
            for compute in computes.values()
        ]
        gets = [f"{one.samples_per_s:,.0f} ({one.limit})" for one in fed]
        made.append(
            [str(cores), row.name, f"{row.samples_per_s:,.0f}", f"{1000 * row.cpu_s:.2f}", *gets]
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, help="a folder of photographs, as examples/photos.py makes it"
    )
    parser.add_argument("--cores", default="1,4,8,16")
    parser.add_argument("--models", default="resnet18,resnet50", help="of torchvision")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--loaders", default=",".join(kind.name for kind in LOADERS if kind.name not in LEFT_OUT)
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    task = task_of(args.data, args.batch_size)
    available = len(os.sched_getaffinity(0))
    names = args.models.split(",")
    computes = {
        name: loader_timing.prepare_training_step(models.get_model(name, num_classes=10), task)()
        for name in names
    }
    rows = [
        [
            "cores",
            "loader",
            "samples/s",
            "CPU ms a sample",
            *(f"{name} gets (limit)" for name in names),
        ]
    ]
    kept: dict[str, object] = {}
    for cores in (int(number) for number in args.cores.split(",")):
        if cores > available:
            print(f"{cores} cores: this machine gives {available}")
            continue
        found = with_cores(
            task, args.loaders.split(","), cores, ComparisonPlan(rounds=args.rounds, part_s=1.0)
        )
        rows += cells(found, computes, cores, task.settings.device)
        kept[str(cores)] = {
            row.name: [row.samples_per_s, row.cpu_s, row.gpu_s] if row.measured else row.why
            for row in found
        }
        write_json(
            args.json,
            models={name: vars(compute) for name, compute in computes.items()},
            samples_per_s_cpu_s_gpu_s=kept,
        )
    alone = ", ".join(
        f"{name} alone {1 / compute.step_s:,.0f} samples/s" for name, compute in computes.items()
    )
    print(
        f"{machine()}, to {task.settings.device}, batches of {args.batch_size}, "
        f"{alone}\n\n{table(rows)}"
    )


if __name__ == "__main__":
    main()
