"""Pillow and the user's own transform in workers: what most trainings do, and the reference for the other loaders."""

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples, Users
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import WorkerLoader
from feedline.pipelines.translate import pillow


def steps(task: Task) -> tuple[Samples, tuple[str, ...]]:
    """The user's transform; or if there is none the recipe, done with torchvision v1, and what is missing in it."""
    if task.transform is not None:
        return Samples(task.photos, decode.pillow, Users(task.transform)), ()
    built = pillow.build(task.recipe, seed_of_rank(task.settings))
    return Samples(task.photos, decode.pillow, built.apply), built.missing


def make(task: Task) -> WorkerLoader:
    return WorkerLoader(task, *steps(task))


KIND = LoaderKind("pillow-v1", "DataLoader, Pillow, the transform as it is: float32 from the workers", needs("PIL", "torchvision"), make)
