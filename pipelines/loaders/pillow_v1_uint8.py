"""Pillow and torchvision v1 as in pillow-v1, but with uint8 from the workers: the same pixels in a quarter of the bytes."""

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import Finish, WorkerLoader
from feedline.pipelines.translate import missing, pillow


def _make(task: Task) -> WorkerLoader:
    """The recipe's operations on PIL images; what is unknown in it is missing, since the user's own transform ends in float32."""
    augment = pillow.OnPillow(missing.known(task.recipe), seed_of_rank(task.settings)).pixels
    return WorkerLoader(task, Samples(task.photos, decode.pillow, augment), missing.unknown(task.recipe), Finish(task))


KIND = LoaderKind("pillow-v1-uint8", "DataLoader, Pillow, torchvision v1, uint8 from the workers", needs("PIL", "torchvision"), _make)
