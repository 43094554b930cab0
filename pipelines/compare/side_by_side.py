"""Compares loaders: each is checked, then all are measured in alternation."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from feedline.pipelines.compare import choice, pixels
from feedline.pipelines.compare.parts import evict_all, long_enough, made_ahead, part_of_epoch, read_all, whole_epoch
from feedline.pipelines.compare.result import Comparison, Compute, Row
from feedline.pipelines.compare.stages import stages_of
from feedline.pipelines.loaders import KINDS, pillow_v1
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.probes.measure import reason
from feedline.pipelines.translate.difference import Difference, differences
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError
from feedline.profiler.samplers.cgroup import effective_cpus

_OPERATION_IMAGES = 16


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
        part_s: of each loader in each round, at least.
        cold: empty the page cache of the images before every part.
    """

    rounds: int = 9
    part_s: float = 1.5
    cold: bool = False


FULL = Plan()


@dataclass(frozen=True)
class ComparisonRun:
    """What to compare.

    Attributes:
        told: called with a few words whenever something new begins, and how many of these there are.
    """

    task: Task
    kinds: Sequence[LoaderKind] = tuple(KINDS)
    plan: Plan = FULL
    told: Callable[[str, int], None] = lambda what, of: None

    def tell(self, what: str) -> None:
        self.told(what, len(self.kinds) * (3 + self.plan.rounds) + 1)


def compare(contest: ComparisonRun, compute: Callable[[], Compute] | None = None) -> Comparison:
    """Check and measure all loaders. One that fails becomes a row with the reason; the others continue.

    Each loader first runs a whole epoch, which also warms it up and says how long a part has to be; then its images are compared with
    those of pillow-v1, and its steps are timed; then come the rounds, forwards and backwards in turns.

    Args:
        compute: measures the model; called at the end.
    """
    task = contest.task
    rows = [Row(kind.name, kind.about, kind.refuses(task.settings.device) or "") for kind in contest.kinds]
    running = [(kind, row) for kind, row in zip(contest.kinds, rows, strict=True) if not row.why]
    if not contest.plan.cold:
        read_all(task.photos)
    check_epochs(contest, running)
    _check_images(contest, running)
    _time_stages(contest, running)
    run_rounds(contest, running)
    contest.tell("operations")
    operations, operations_why = _check_operations(task)
    cores = effective_cpus()
    step = compute() if compute is not None else None
    if step is not None:
        for row in rows:
            row.feeds = choice.feeds(row, step, cores, task.settings.device) if row.measured else None
    chosen = choice.choose(rows, step, cores)
    left_out: dict[str, list[str]] = {}
    for problem in task.photos.problems:
        if problem.left_out:
            left_out.setdefault(problem.kind, []).append(os.path.relpath(problem.path, task.photos.root))
    settings = {"batch_size": task.settings.batch_size, "workers": task.settings.workers, "device": task.settings.device}
    return Comparison(
        rows=rows,
        photos=len(task.photos),
        sample_bytes=task.photos.mean_bytes,
        left_out=left_out,
        settings={**settings, "seed": task.settings.seed, "rounds": contest.plan.rounds, "part_s": contest.plan.part_s},
        cache="cold" if contest.plan.cold else "warm",
        cores=cores,
        compute=step,
        choice=chosen.message,
        takes=chosen.takes,
        operations=operations,
        operations_why=operations_why,
    )


Running = Sequence[tuple[LoaderKind, Row]]


def check_epochs(contest: ComparisonRun, running: Running) -> None:
    """Check that every sample arrives exactly once."""
    for kind, row in running:
        contest.tell(f"{kind.name}: one epoch")
        try:
            row.epoch, loader = whole_epoch(kind, contest.task)
            row.missing, row.about = loader.missing, getattr(loader, "about", row.about)
        except Exception as error:
            row.why = why(error)


def _check_images(contest: ComparisonRun, running: Running) -> None:
    """Compare the images with those of the user's transform."""
    task = pixels.frozen_task(contest.task)
    try:
        reference = pixels.images_of(pillow_v1.KIND, task)
    except Exception as error:
        for _, row in running:
            row.pixels_why = f"pillow-v1, the reference for the images, failed: {why(error)}"
        return
    for kind, row in running:
        contest.tell(f"{kind.name}: images")
        if row.why:
            continue
        if kind.name == choice.SYNTHETIC:
            row.pixels_why = "it always returns the same images"
            continue
        try:
            row.pixels = pixels.compare_images(pixels.images_of(kind, task), reference)
        except Exception as error:
            row.pixels_why = why(error)


def _check_operations(task: Task) -> tuple[list[Difference], str]:
    """Compare each library's result of each operation of the transform; also returns why that is unknown."""
    try:
        return differences(task.recipe, task.photos, _OPERATION_IMAGES), ""
    except Exception as error:
        return [], why(error)


def _time_stages(contest: ComparisonRun, running: Running) -> None:
    """Measure the cost of each step of a loader."""
    for kind, row in running:
        contest.tell(f"{kind.name}: steps")
        if row.why:
            continue
        try:
            found = stages_of(kind, contest.task)
        except Exception as error:
            found = why(error)
        row.stages, row.stages_why = (None, found) if isinstance(found, str) else (found, "")


def run_rounds(contest: ComparisonRun, running: Running) -> None:
    """Measure throughput and cost."""
    plan = contest.plan
    for number in range(plan.rounds):
        for kind, row in running if number % 2 == 0 else list(reversed(running)):
            contest.tell(f"{kind.name}: round {number + 1} of {plan.rounds}")
            if row.why or row.epoch is None:
                continue
            task = contest.task if plan.cold else _repeated(contest.task, row, plan.part_s)
            if plan.cold:
                evict_all(task.photos)
            try:
                row.parts.append(part_of_epoch(kind, task, number + 1, plan.part_s))
            except Exception as error:
                row.why = why(error)


def _repeated(task: Task, row: Row, part_s: float) -> Task:
    """The dataset, repeated so that no part reaches its end: the last batches of an epoch come from idle workers."""
    assert row.epoch is not None
    rate = row.epoch.samples / max(row.epoch.wall_s, 1e-9)
    if row.parts:
        rate = max(rate, *row.rates)
    ahead = made_ahead(replace(task, photos=replace(task.photos, photos=task.photos.photos * 100)))
    return long_enough(task, 2 * rate * part_s + (ahead + 2) * task.settings.batch_size)


def why(error: Exception) -> str:
    """An error in one line. feedline's own errors are complete; errors from a worker have their message at the end of a traceback."""
    if isinstance(error, FeedlineError):
        return masks.text(str(error))
    lines = str(error).strip().splitlines()
    return masks.text(lines[-1]) if lines and "DataLoader worker" in lines[0] and len(lines) > 1 else reason(error)
