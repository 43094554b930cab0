"""Compares loaders: each is checked, then all are measured in alternation.

The images of two loaders are compared with every random parameter of the user's recipe fixed.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from feedline.pipelines.compare import choice
from feedline.pipelines.compare.comparison_result import (
    Comparison,
    Compute,
    Epoch,
    LoaderRow,
    PixelDifference,
    TrainingRate,
    median_interval,
)
from feedline.pipelines.compare.loader_timing import (
    AHEAD_PER_WORKER,
    MOSTLY,
    open_loader,
    run_part,
    share_in_page_cache,
    time_stages,
)
from feedline.pipelines.loaders import LOADERS, pillow_loaders
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask, ReadyLoader
from feedline.pipelines.photos import Photos
from feedline.pipelines.probes.probe_rounds import error_reason
from feedline.pipelines.probes.read_speed import evict, filesystem
from feedline.pipelines.translate.difference import LibraryDifference, compare_libraries
from feedline.pipelines.translate.image_operations import Erase
from feedline.pipelines.translate.recipe import Recipe, freeze_recipe
from feedline.profiler import masks
from feedline.profiler.errors import DataError, FeedlineError
from feedline.profiler.samplers.cgroup import effective_cpus

# pages that were read ahead and that have not arrived yet cannot be dropped
_IN_FLIGHT_S = 0.01
_MAX_NAMED = 5  # samples named as wrong
# of a repeated dataset: a list of that many paths takes some 20 MB in each worker
_MAX_SAMPLES = 200_000

_IN_MEMORY = ("tmpfs", "ramfs")
_COMPARED_IMAGES = 48
#: Bounds in gray levels. Decoders differ by 1 or 2 levels where chroma is upsampled, antialiased
#: resizes by less than 1 on average; an image that is mirrored, shifted by a pixel or of swapped
#: channels is off by 5 and more on average.
_MEAN_BOUND, _IMAGE_BOUND = 1.5, 3.0

_GrayImages = dict[int, torch.Tensor]
_OPERATION_IMAGES = 16


def _frozen_task(task: LoadTask) -> LoadTask:
    """Choose some photos, spread over the dataset, and fix the recipe.

    Erasing with noise is left out, because noise never repeats.
    """
    chosen = task.photos.spread(_COMPARED_IMAGES)
    recipe = freeze_recipe(task.recipe, task.settings.seed)
    repeatable = [
        operation
        for operation in recipe.operations
        if not (isinstance(operation, Erase) and operation.value is None)
    ]
    fixed = Recipe(tuple(repeatable), recipe.mean, recipe.std)
    return replace(task, photos=replace(task.photos, photos=chosen), recipe=fixed, transform=None)


def _gray_images(kind: LoaderKind, task: LoadTask) -> _GrayImages:
    """Return images by index, as gray levels: float32 [3, h, w] on the CPU, 0 to 255."""
    images: _GrayImages = {}
    with open_loader(kind, task) as loader:
        for batch in loader.epoch(0):
            gray = _grey_levels(batch.images.float().cpu(), task.recipe)
            images.update(zip(batch.index.tolist(), gray, strict=True))
    return images


def _grey_levels(images: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Undo the normalisation.

    Args:
        images: float32 [n, 3, h, w].
        recipe: says how they were normalised.
    """
    if recipe.mean is not None and recipe.std is not None:
        images = images * torch.tensor(recipe.std).view(-1, 1, 1) + torch.tensor(recipe.mean).view(
            -1, 1, 1
        )
    return images * 255


def _compare_images(images: _GrayImages, reference: _GrayImages) -> PixelDifference:
    """Compare images of the same index."""
    if images.keys() != reference.keys():
        return PixelDifference(
            len(images), 0.0, 0.0, 0.0, f"{len(images)} images came, not {len(reference)}"
        )
    shapes = next(
        (
            (images[at].shape, reference[at].shape)
            for at in images
            if images[at].shape != reference[at].shape
        ),
        None,
    )
    if shapes:
        return PixelDifference(
            len(images), 0.0, 0.0, 0.0, f"images are {_size(shapes[0])}, not {_size(shapes[1])}"
        )
    means, largest = [], 0.0
    for at, image in images.items():
        difference = (image - reference[at]).abs()
        means.append(float(difference.mean()))
        largest = max(largest, float(difference.max()))
    return PixelDifference(
        len(images), sum(means) / len(means), max(means), largest, _why_not_equal(means)
    )


def _why_not_equal(means: Sequence[float]) -> str:
    """Say why images with these mean differences are not equal; empty if they are.

    A NaN is a difference.
    """
    mean = sum(means) / len(means)
    if not mean <= _MEAN_BOUND:
        return f"{mean:.2f} gray levels on average, more than {_MEAN_BOUND}"
    if not max(means) <= _IMAGE_BOUND:
        return (
            f"one image is off by {max(means):.2f} gray levels on average, more than {_IMAGE_BOUND}"
        )
    return ""


def _size(shape: torch.Size) -> str:
    return " x ".join(map(str, shape))


@dataclass(frozen=True)
class ComparisonPlan:
    """How long to measure.

    Attributes:
        part_s: of each loader in each round, at least.
        cold: empty the page cache of the images before every part.
    """

    rounds: int = 9
    part_s: float = 1.5
    cold: bool = False


FULL_COMPARISON = ComparisonPlan()


@dataclass(frozen=True)
class ComparisonRun:
    """What to compare.

    Attributes:
        notify: called with a few words whenever something new begins, and how many of these there
            are.
    """

    task: LoadTask
    kinds: Sequence[LoaderKind] = tuple(LOADERS)
    plan: ComparisonPlan = FULL_COMPARISON
    notify: Callable[[str, int], None] = lambda what, of: None

    @cached_property
    def runnable(self) -> list[LoaderKind]:
        """The kinds that can run on this machine."""
        return [kind for kind in self.kinds if kind.refuses(self.task.settings.device) is None]

    def tell(self, what: str) -> None:
        """Report that something new begins."""
        self.notify(what, len(self.runnable) * (3 + self.plan.rounds) + 2)


def compare_loaders(run: ComparisonRun, compute: Callable[[], Compute] | None = None) -> Comparison:
    """Check and measure all loaders.

    One that fails becomes a row with the reason; the others continue. If the model fails, the
    loaders are compared without it. Each loader first runs a whole epoch, which also warms it up
    and says how long a part has to be; then its images are compared with those of pillow-v1, and
    its steps are timed; then come the rounds, forwards and backwards in turn.

    Args:
        run: what to compare.
        compute: measures the model; called at the end.

    Raises:
        DataError: the images are to be read cold, and stay in memory.
    """
    task = run.task
    cached = _set_page_cache(run)
    rows = [
        LoaderRow(kind.name, kind.about, kind.refuses(task.settings.device) or "")
        for kind in run.kinds
    ]
    running = [(kind, row) for kind, row in zip(run.kinds, rows, strict=True) if not row.why]
    _check_epochs(run, running)
    _check_images(run, running)
    _time_stages(run, running)
    _run_rounds(run, running)
    run.tell("operations")
    operations, operations_why = _check_operations(task)
    cores = effective_cpus()
    step, compute_why = _try_compute(compute)
    if step is not None:
        for row in rows:
            row.feeds = (
                _predict_training_rate(row, step, cores, task.settings.device)
                if row.measured
                else None
            )
    chosen = choice.choose(rows, step, cores)
    return Comparison(
        rows=rows,
        photos=len(task.photos),
        sample_bytes=task.photos.mean_bytes,
        left_out=_left_out(task.photos),
        settings={
            "batch_size": task.settings.batch_size,
            "workers": task.settings.workers,
            "device": task.settings.device,
            "seed": task.settings.seed,
            "rounds": run.plan.rounds,
            "part_s": run.plan.part_s,
        },
        cache=_cache_state(run.plan.cold, cached),
        cached=cached,
        cores=cores,
        compute=step,
        compute_why=compute_why,
        choice=chosen.message,
        takes=chosen.takes,
        operations=operations,
        operations_why=operations_why,
    )


def _set_page_cache(run: ComparisonRun) -> float | None:
    """Fill the page cache with the images, or evict them from it.

    Returns:
        The share of some of them in it afterwards; None: Linux does not tell.

    Raises:
        DataError: they are to be read cold, and stay in memory.
    """
    photos = run.task.photos
    if not run.plan.cold:
        run.tell("reading all files into the page cache")
        _fill_page_cache(photos)
        return share_in_page_cache(photos)
    if (kind := filesystem(photos.root)) in _IN_MEMORY:
        raise DataError(
            f"{photos.root} is in memory ({kind}), so it cannot be read cold: copy it to a disk, "
            "or leave out --cold"
        )
    run.tell("evicting all files from the page cache")
    return _evict_photos(photos)


def _cache_state(cold: bool, cached: float | None) -> str:
    """Name the state of the page cache, given the share of the images that was found in it."""
    if cold:
        return "cold"
    return "partly cached" if cached is not None and cached < MOSTLY else "warm"


def _try_compute(compute: Callable[[], Compute] | None) -> tuple[Compute | None, str]:
    """Measure the model, if there is one; also return why it could not be measured."""
    if compute is None:
        return None, ""
    try:
        return compute(), ""
    except Exception as error:
        return None, _error_line(error)


def _left_out(photos: Photos) -> dict[str, list[str]]:
    """Return the files that no loader gets, by what is wrong with them."""
    files: dict[str, list[str]] = {}
    for problem in photos.problems:
        if problem.left_out:
            files.setdefault(problem.kind, []).append(os.path.relpath(problem.path, photos.root))
    return files


_RunningLoaders = Sequence[tuple[LoaderKind, LoaderRow]]


def _check_epochs(run: ComparisonRun, running: _RunningLoaders) -> None:
    """Check that every sample arrives exactly once."""
    for kind, row in running:
        run.tell(f"{kind.name}: one epoch")
        try:
            row.epoch, loader = _run_epoch(kind, run.task)
            row.missing, row.about = loader.missing, getattr(loader, "about", row.about)
        except Exception as error:
            row.why = _error_line(error)


def _check_images(run: ComparisonRun, running: _RunningLoaders) -> None:
    """Compare the images with those of the user's transform."""
    task = _frozen_task(run.task)
    reference: _GrayImages = {}
    why = ""
    try:
        reference = _gray_images(pillow_loaders.PILLOW_V1, task)
    except Exception as error:
        why = f"pillow-v1, the reference for the images, failed: {_error_line(error)}"
    for kind, row in running:
        run.tell(f"{kind.name}: images")
        if row.why:
            continue
        if why:
            row.pixels_why = why
            continue
        if row.is_upper_bound:
            row.pixels_why = "it always returns the same images"
            continue
        try:
            row.pixels = _compare_images(_gray_images(kind, task), reference)
        except Exception as error:
            row.pixels_why = _error_line(error)


def _check_operations(task: LoadTask) -> tuple[list[LibraryDifference], str]:
    """Compare each library's result of each operation of the transform.

    Returns:
        The differences, and why they are unknown.
    """
    try:
        return compare_libraries(task.recipe, task.photos, _OPERATION_IMAGES), ""
    except Exception as error:
        return [], _error_line(error)


def _time_stages(run: ComparisonRun, running: _RunningLoaders) -> None:
    """Measure the cost of each step of a loader."""
    for kind, row in running:
        run.tell(f"{kind.name}: steps")
        if row.why:
            continue
        try:
            costs = time_stages(kind, run.task)
        except Exception as error:
            costs = _error_line(error)
        row.stages, row.stages_why = (None, costs) if isinstance(costs, str) else (costs, "")


def _run_rounds(run: ComparisonRun, running: _RunningLoaders) -> None:
    """Measure throughput and cost."""
    plan = run.plan
    for number in range(plan.rounds):
        for kind, row in running if number % 2 == 0 else list(reversed(running)):
            run.tell(f"{kind.name}: round {number + 1} of {plan.rounds}")
            if row.why or row.epoch is None:
                continue
            try:
                task = run.task if plan.cold else _repeated(run.task, row, plan.part_s)
                if plan.cold:
                    _evict_photos(task.photos)
                row.parts.append(run_part(kind, task, number + 1, plan.part_s))
            except Exception as error:
                row.why = _error_line(error)


def _repeated(task: LoadTask, row: LoaderRow, part_s: float) -> LoadTask:
    """Repeat the dataset so that no part reaches its end.

    The last batches of an epoch come from idle workers.
    """
    assert row.epoch is not None
    rate = row.epoch.samples / max(row.epoch.wall_s, 1e-9)
    if row.parts:
        rate = max(rate, *row.rates)
    ahead = max(1, AHEAD_PER_WORKER * task.settings.workers)
    return _repeat_photos(task, 2 * rate * part_s + (ahead + 2) * task.settings.batch_size)


def _error_line(error: Exception) -> str:
    """Write an error in one line.

    feedline's own errors are complete; errors from a worker have their message at the end of a
    traceback.
    """
    if isinstance(error, FeedlineError):
        return masks.text(str(error))
    lines = str(error).strip().splitlines()
    return (
        masks.text(lines[-1])
        if lines and "DataLoader worker" in lines[0] and len(lines) > 1
        else error_reason(error)
    )


def _repeat_photos(task: LoadTask, samples: float) -> LoadTask:
    """Repeat the images, so that an epoch has at least this many samples."""
    photos = task.photos.photos
    times = max(1, math.ceil(min(samples, _MAX_SAMPLES) / len(photos)))
    return replace(task, photos=replace(task.photos, photos=photos * times))


def _fill_page_cache(photos: Photos) -> None:
    """Read every file into the page cache."""
    for photo in photos.photos:
        with open(photo.path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _run_epoch(kind: LoaderKind, task: LoadTask) -> tuple[Epoch, ReadyLoader]:
    """Run an epoch, and check that every sample arrives exactly once.

    Returns:
        The epoch, and the loader, closed.
    """
    start = time.perf_counter()
    seen: Counter[int] = Counter()
    with open_loader(kind, task) as loader:
        for batch in loader.epoch(0):
            if len(batch.images) != len(batch.index):
                return Epoch(
                    sum(seen.values()),
                    0.0,
                    f"{len(batch.images)} images came with {len(batch.index)} labels",
                ), loader
            seen.update(batch.index.tolist())
    return Epoch(
        sum(seen.values()), time.perf_counter() - start, _arrival_problems(seen, len(task.photos))
    ), loader


def _arrival_problems(seen: Counter[int], samples: int) -> str:
    """Say which of the samples 0 to ``samples`` - 1 did not arrive exactly once."""
    twice = sorted(index for index, times in seen.items() if times > 1)
    never = sorted(set(range(samples)) - set(seen))
    unknown = sorted(set(seen) - set(range(samples)))
    groups = (("came more than once", twice), ("never came", never), ("do not exist", unknown))
    problems = [f"{len(group)} {what} ({_first(group)})" for what, group in groups if group]
    return "; ".join(problems)


def _first(group: list[int]) -> str:
    """Write the first few as text."""
    return ", ".join(map(str, group[:_MAX_NAMED])) + (", ..." if len(group) > _MAX_NAMED else "")


def _evict_photos(photos: Photos) -> float | None:
    """Evict every file from the page cache.

    Returns:
        The share of some of them that is left in it; None: Linux does not tell.

    Raises:
        DataError: they stay in it.
    """
    _drop(photos)
    if left := share_in_page_cache(photos):
        time.sleep(_IN_FLIGHT_S)
        _drop(photos)
        left = share_in_page_cache(photos)
    if left is not None and left > 1 - MOSTLY:
        raise DataError(
            f"the images cannot be read cold, because {100 * left:.0f} % of them stay in the page "
            f"cache: leave out --cold"
        )
    return left


def _drop(photos: Photos) -> None:
    for path in {photo.path for photo in photos.photos}:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            evict(descriptor)
        finally:
            os.close(descriptor)


def _predict_training_rate(
    row: LoaderRow, compute: Compute, cores: float, device: str
) -> TrainingRate:
    """Predict samples/s of a training with this loader: the lowest of three limits.

    - loader: what the loader gave when nothing else ran.
    - compute: one step after the other in the main thread: receiving a sample, then computing with
      it; and the loader's time on the GPU.
    - cores: the CPU seconds of loading and computing a sample, shared out over the cores.
    """
    gpu_s = (row.gpu_s or 0.0) if device != "cpu" else 0.0

    def limited(rate: float, cpu_s: float, main_s: float) -> dict[str, float]:
        return {
            "loader": rate,
            "compute": 1 / (compute.step_s + main_s + gpu_s),
            "cores": cores / (cpu_s + compute.cpu_s),
        }

    limits = limited(row.samples_per_s, row.cpu_s, row.main_s)
    limit = min(limits, key=lambda name: limits[name])
    (slow, fast), (cpu_low, cpu_high), (main_low, main_high) = (
        median_interval(each) for each in (row.rates, row.cpu_each, row.main_each)
    )
    ends = (
        min(limited(slow, cpu_high, main_high).values()),
        min(limited(fast, cpu_low, main_low).values()),
    )
    return TrainingRate(limits[limit], limit, limits, *ends)
