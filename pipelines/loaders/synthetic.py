"""The same batch repeatedly: the upper bound that a loader without cost would reach."""

from collections.abc import Iterator

import torch

from feedline.pipelines.loaders import pillow_v1
from feedline.pipelines.loaders.protocol import Batch, LoaderKind, Task
from feedline.pipelines.loaders.random_state import OwnRandomState
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import in_batches, order, seed_of_rank


class _Synthetic:
    """Each batch has its own indices and the images of the first batch of the folder."""

    def __init__(self, task: Task) -> None:
        self.samples: Samples | str = "nothing is done"
        self.task = task
        samples, self.missing = pillow_v1.steps(task)
        with OwnRandomState(seed_of_rank(task.settings)):
            first = [samples[index][0] for index in range(min(task.settings.batch_size, len(samples)))]
        self.images = torch.stack(first).to(task.settings.device)

    def epoch(self, number: int) -> Iterator[Batch]:
        settings = self.task.settings
        for indices in in_batches(order(len(self.task.photos), settings, number), settings.batch_size):
            yield Batch(self.images[: len(indices)], torch.tensor(indices))

    def close(self) -> None:
        pass


KIND = LoaderKind("synthetic", "one batch in memory again and again: the upper bound", needs("PIL", "torchvision"), _Synthetic)
