"""The same batch repeatedly: the upper bound that a loader without cost would reach."""

from collections.abc import Iterator

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders import pillow_loaders
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind, LoadTask, epoch_order, rank_seed, split_batches
from feedline.pipelines.random_states import OwnRandomState


class _Synthetic:
    """Each batch has its own indices and the images of the first batch of the folder."""

    def __init__(self, task: LoadTask) -> None:
        self.samples: ImageSamples | str = "nothing is done"
        self.task = task
        samples, self.missing = pillow_loaders.reference_samples(task)
        with OwnRandomState(rank_seed(task.settings)):
            first = [samples[index][0] for index in range(min(task.settings.batch_size, len(samples)))]
        self.images = torch.stack(first).to(task.settings.device)

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        settings = self.task.settings
        for indices in split_batches(epoch_order(len(self.task.photos), settings, number), settings.batch_size):
            yield LoadedBatch(self.images[: len(indices)], torch.tensor(indices))

    def close(self) -> None:
        pass


SYNTHETIC = LoaderKind("synthetic", "one batch in memory again and again: the upper bound", needs("PIL", "torchvision"), _Synthetic)
