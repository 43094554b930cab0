"""The same batch repeatedly: the upper bound that a loader without cost would reach."""

from collections.abc import Iterator

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.pillow_loaders import reference_samples
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind, LoadTask
from feedline.pipelines.random_states import OwnRandomState


class _SyntheticLoader:
    """Each batch has its own indices and the images of the first batch of the folder."""

    def __init__(self, task: LoadTask) -> None:
        self.samples: ImageSamples | str = "nothing is done"
        self.task = task
        samples, self.missing = reference_samples(task)
        with OwnRandomState(task.settings.rank_seed):
            size = min(task.settings.batch_size, len(samples))
            images = [samples[index][0] for index in range(size)]
        self.images = torch.stack(images).to(task.settings.device)

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        for indices in self.task.settings.epoch_batches(len(self.task.photos), number):
            yield LoadedBatch(self.images[: len(indices)], torch.tensor(indices))

    def close(self) -> None:
        pass


SYNTHETIC = LoaderKind(
    "synthetic",
    "one batch in memory again and again: the upper bound",
    needs("PIL", "torchvision"),
    _SyntheticLoader,
)
