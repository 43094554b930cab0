"""``feedline compare``."""

import argparse
import dataclasses
import json
import platform
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.cli.options import add_output, add_training, at_least, name_list
from feedline.cli.outputs import console_for, make_folder, name_files, progress_bar, save
from feedline.pipelines.names import LOADER_NAMES
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import say

if TYPE_CHECKING:
    from feedline.pipelines.compare.comparison_result import Comparison, Compute
    from feedline.pipelines.compare.side_by_side import ComparisonRun
    from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask

_COMPARISON_FILES = ("compare.json", "benchmark.json", "compare.html", "ceilings.json")
_CHECKING = "checking the images"
_IMAGE_SIZE = 224  # pixels, of the default transform


class CompareCommand:
    """Compare data loaders on your images and transforms: PyTorch, SPDL, DALI.

    First checks each loader: does every image arrive exactly once in an epoch? With the same crops and
    flips, are the tensors of all loaders equal? Then measures the throughput of all loaders
    in alternating rounds.

    MODULE:NAME is an object in a module that Python can import from the current folder. Default
    transforms: RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize. With --model, the
    result also says what rate this model gets.

    Examples:
        feedline compare --data photos
        feedline compare --data photos --transforms train:transform --model train:model --workers 4
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        training = parser.add_argument_group("training")
        add_training(training, data_required=True)
        training.add_argument(
            "--workers",
            type=at_least(0),
            metavar="N",
            help="worker processes or threads of each loader (default: one per CPU, at most 16)",
        )
        measuring = parser.add_argument_group("measuring")
        measuring.add_argument(
            "--loaders",
            type=name_list,
            metavar="NAME,NAME",
            help=f"compare only these, out of {', '.join(LOADER_NAMES)} (docs/compare.md describes them)",
        )
        measuring.add_argument(
            "--max-images",
            type=at_least(1),
            metavar="IMAGES",
            help="use at most this many images of the folder (default: all)",
        )
        measuring.add_argument(
            "--rounds",
            type=at_least(1),
            metavar="N",
            help="number of alternating rounds: more rounds, narrower confidence intervals (default: 9)",
        )
        measuring.add_argument(
            "--cold",
            action="store_true",
            help="drop the images from the page cache before each measurement",
        )
        add_output(
            parser,
            "folder to create (default: runs/compare-TIME)",
            metavar="FOLDER",
            json="the comparison",
            force="replace an older comparison",
        )

    def run(self, args: argparse.Namespace) -> int:
        folder, new = make_folder(args, "compare", _COMPARISON_FILES)
        try:
            return _measure(args, folder)
        except BaseException:
            if new:
                results.drop_empty(folder)
            raise


def _measure(args: argparse.Namespace, folder: Path) -> int:
    """Compare, show and write; return the exit code: 1 if no loader could be measured."""
    kinds = _chosen(args.loaders)
    task = _task_of(args)

    from feedline.analysis.report import document_text
    from feedline.cli.compare.text import document_of, program_lines
    from feedline.pipelines.compare.side_by_side import (
        FULL_COMPARISON,
        ComparisonRun,
        compare_loaders,
    )

    console = console_for(args)
    plan = dataclasses.replace(
        FULL_COMPARISON, rounds=args.rounds or FULL_COMPARISON.rounds, cold=args.cold
    )
    run = ComparisonRun(task, kinds, plan)
    if run.runnable and not args.quiet:
        say(_beforehand(run))
    with progress_bar(args.quiet, "comparing") as tell:
        steps = count(1)
        comparison = compare_loaders(
            dataclasses.replace(run, notify=lambda what, of: tell(what, next(steps), of)),
            _compute_of(args.model, task),
        )
    comparison.machine.update(_machine())
    if comparison.takes:
        program = program_lines(
            comparison.takes,
            args.data,
            args.transforms,
            **{name: comparison.settings[name] for name in ("batch_size", "workers")},
        )
        comparison = dataclasses.replace(comparison, lines=program)
    document_text.show(document_of(comparison), console)
    with deferred():
        written = _write(comparison, folder, args.json)
    name_files(console, written)
    return 0 if comparison.measured else 1


def _beforehand(run: "ComparisonRun") -> str:
    """Say how long comparing the loaders that can run here takes."""
    from feedline.analysis.text.formatting import counted, duration

    number, plan = len(run.runnable), run.plan
    least = duration(number * plan.rounds * plan.part_s)
    return f"comparing {counted(number, 'loader')} takes at least {least}, after an epoch of each"


def _chosen(wanted: list[str] | None) -> "list[LoaderKind]":
    """Return the loaders of ``--loaders``, in the order of the full list.

    Raises:
        ScriptError: there is no such loader.
    """
    from feedline.pipelines.loaders import LOADERS

    for name in wanted or []:
        if name not in LOADER_NAMES:
            raise ScriptError(
                f"--loaders: unknown loader {name!r}; the loaders are {', '.join(LOADER_NAMES)}"
            )
    return [kind for kind in LOADERS if wanted is None or kind.name in wanted]


def _task_of(args: argparse.Namespace) -> "LoadTask":
    """Return the images, transform and settings to load.

    Raises:
        DataError, UserCodeError, MissingDependency: see the functions called.
    """
    import torch

    from feedline.pipelines.loaders.protocol import LoaderSettings, LoadTask
    from feedline.pipelines.photos import scan
    from feedline.pipelines.translate import recipe
    from feedline.profiler.samplers.cgroup import effective_cpus

    transform = _load_transform(args.transforms)
    with progress_bar(args.quiet, _CHECKING) as tell:
        photos = scan(args.data, args.max_images, tell=partial(tell, _CHECKING))
    workers = args.workers if args.workers is not None else max(1, min(16, int(effective_cpus())))
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    task = LoadTask(
        photos,
        recipe.read_recipe(transform),
        LoaderSettings(args.batch_size, workers, device=device),
        transform,
    )
    _try_out(task)
    return task


def _load_transform(spec: str | None) -> Any:
    """Return the user's transform, or the usual one for ImageNet."""
    if spec is not None:
        from feedline.pipelines import user_modules

        return user_modules.load_transforms(spec)

    from feedline.pipelines.libraries import load

    transforms = load("torchvision.transforms")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    steps = [
        transforms.RandomResizedCrop(_IMAGE_SIZE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ]
    return transforms.Compose(steps)


def _try_out(task: "LoadTask") -> None:
    """Run the transform on very different images, to report a mistake in it at once.

    Raises:
        UserCodeError: it raises, gives no tensor, or tensors that do not fit into one batch.
    """
    from feedline.pipelines.loaders import pillow_loaders
    from feedline.pipelines.random_states import OwnRandomState
    from feedline.profiler.errors import UserCodeError

    samples, _ = pillow_loaders.reference_samples(task)
    by_shape = sorted(
        enumerate(task.photos.photos), key=lambda image: image[1].width / image[1].height
    )
    by_size = sorted(by_shape, key=lambda image: image[1].width * image[1].height)
    with OwnRandomState(0):
        shapes = [
            tuple(samples[at][0].shape)
            for at, _ in (by_shape[0], by_shape[-1], by_size[0], by_size[-1])
        ]
    different = list(dict.fromkeys(shapes))
    if len(different) > 1:
        raise UserCodeError(
            f"the transforms return tensors of different shapes, {different[0]} and "
            f"{different[1]}, which cannot be batched: "
            "add a crop at the end, or give Resize a height and a width"
        )


def _compute_of(spec: str | None, task: "LoadTask") -> "Callable[[], Compute] | None":
    """Return a function that measures a training step of the user's model; None: no model.

    Raises:
        UserCodeError: the model cannot be loaded.
    """
    if spec is None:
        return None
    from feedline.pipelines import user_modules
    from feedline.pipelines.compare.loader_timing import prepare_training_step

    return prepare_training_step(user_modules.load_model(spec), task)


def _machine() -> dict[str, object]:
    """Return facts about the machine that the figures depend on, without its name."""
    import torch

    from feedline.profiler.session import session

    facts = {**session.machine(), "python": platform.python_version(), "torch": torch.__version__}
    return facts | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


def _write(comparison: "Comparison", folder: Path, json_file: Path | None) -> list[Path]:
    """Write the comparison in all its formats.

    Raises:
        OutputError: a file cannot be written.
    """
    from feedline.cli.compare.text import render
    from feedline.pipelines.compare.comparison_result import (
        loader_ceilings,
        to_plain,
        to_pytest_benchmark,
    )

    plain = json.dumps(to_plain(comparison), indent=1)
    texts = (
        plain,
        json.dumps(to_pytest_benchmark(comparison), indent=1),
        render(comparison),
        loader_ceilings(comparison).text(),
    )
    written = [
        results.save(folder, name, text)
        for name, text in zip(_COMPARISON_FILES, texts, strict=True)
    ]
    if json_file is not None:
        save(json_file, plain)
        written.append(json_file)
    return written
