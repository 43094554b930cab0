"""Loaders with Pillow and torchvision.

``pillow-v1`` applies the user's own transform in workers: what most trainings do, and the reference
for the other loaders. ``pillow-v1-uint8`` sends the same pixels in a quarter of the bytes.
``pillow-v2`` augments uint8 tensors with torchvision v2; they become float32 on the device.
``synthetic`` returns the first batch again and again: what a loader without cost would reach.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import ImageSamples, as_tensor, decode_pillow
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.random_states import OwnRandomState
from feedline.pipelines.translate.to_torchvision import OnPillowImages, build_v1, build_v2
from feedline.profiler.errors import UserCodeError


def reference_samples(task: LoadTask) -> tuple[ImageSamples, tuple[str, ...]]:
    """Return samples with the user's transform, and what is missing in it.

    Without a transform, the recipe is done with torchvision v1.
    """
    if task.transform is not None:
        return ImageSamples(task.photos, decode_pillow, _UserTransform(task.transform)), ()
    built = build_v1(task.recipe, task.settings.rank_seed)
    return ImageSamples(task.photos, decode_pillow, built.apply), built.missing


def _make_v1(task: LoadTask) -> WorkerLoader:
    return WorkerLoader(task, *reference_samples(task))


def _make_v1_uint8(task: LoadTask) -> WorkerLoader:
    """Do the recipe on PIL images; what is unknown is missing: the user's own ends in float32."""
    augment = OnPillowImages(task.recipe.known, task.settings.rank_seed).pixels
    samples = ImageSamples(task.photos, decode_pillow, augment)
    return WorkerLoader(task, samples, task.recipe.missing, FinishOnDevice(task))


def _make_v2(task: LoadTask) -> WorkerLoader:
    built = build_v2(task.recipe, task.settings.rank_seed)
    samples = ImageSamples(task.photos, _decode_to_tensor, built.apply)
    return WorkerLoader(task, samples, built.missing, FinishOnDevice(task))


def _decode_to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return as_tensor(np.array(decode_pillow(data)))


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


@dataclass(frozen=True)
class _UserTransform:
    """The user's own transform. It can be pickled if the transform can."""

    transform: Callable[[Any], Any]

    def __call__(self, image: Any) -> torch.Tensor:
        """Transform a PIL image.

        Raises:
            UserCodeError: the transform raises, or returns no tensor.
        """
        try:
            tensor = self.transform(image)
        except Exception as error:
            raise UserCodeError(f"the transform raises {type(error).__name__}: {error}") from error
        if not isinstance(tensor, torch.Tensor):
            raise UserCodeError(
                f"the transform returns a {type(tensor).__name__}, not a tensor: end it with "
                f"ToTensor()"
            )
        return tensor


PILLOW_V1 = LoaderKind(
    "pillow-v1",
    "DataLoader, Pillow, the transform as it is: float32 from the workers",
    needs("PIL", "torchvision"),
    _make_v1,
)
LOADERS = (
    PILLOW_V1,
    LoaderKind(
        "pillow-v1-uint8",
        "DataLoader, Pillow, torchvision v1, uint8 from the workers",
        needs("PIL", "torchvision"),
        _make_v1_uint8,
    ),
    LoaderKind(
        "pillow-v2",
        "DataLoader, Pillow, torchvision v2 on uint8",
        needs("PIL", "torchvision"),
        _make_v2,
    ),
    LoaderKind(
        "synthetic",
        "one batch in memory again and again: the upper bound",
        needs("PIL", "torchvision"),
        _SyntheticLoader,
    ),
)
