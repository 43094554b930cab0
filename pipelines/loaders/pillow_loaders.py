"""Pillow and the user's own transform in workers: what most trainings do, and the reference for the other loaders."""

import numpy as np
import torch

from feedline.pipelines import libraries
from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders import image_samples
from feedline.pipelines.loaders.image_samples import ImageSamples, UserTransform
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask, rank_seed
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.translate import to_torchvision


def reference_samples(task: LoadTask) -> tuple[ImageSamples, tuple[str, ...]]:
    """The user's transform; or if there is none the recipe, done with torchvision v1, and what is missing in it."""
    if task.transform is not None:
        return ImageSamples(task.photos, image_samples.decode_pillow, UserTransform(task.transform)), ()
    built = to_torchvision.build_v1(task.recipe, rank_seed(task.settings))
    return ImageSamples(task.photos, image_samples.decode_pillow, built.apply), built.missing


def make_pillow_v1(task: LoadTask) -> WorkerLoader:
    return WorkerLoader(task, *reference_samples(task))


PILLOW_V1 = LoaderKind(
    "pillow-v1", "DataLoader, Pillow, the transform as it is: float32 from the workers", needs("PIL", "torchvision"), make_pillow_v1
)


def _make_v1_uint8(task: LoadTask) -> WorkerLoader:
    """The recipe's operations on PIL images; what is unknown in it is missing, since the user's own transform ends in float32."""
    augment = to_torchvision.OnPillowImages(libraries.known(task.recipe), rank_seed(task.settings)).pixels
    return WorkerLoader(
        task, ImageSamples(task.photos, image_samples.decode_pillow, augment), libraries.unknown(task.recipe), FinishOnDevice(task)
    )


PILLOW_V1_UINT8 = LoaderKind(
    "pillow-v1-uint8", "DataLoader, Pillow, torchvision v1, uint8 from the workers", needs("PIL", "torchvision"), _make_v1_uint8
)


def _decode_to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return image_samples.as_tensor(np.array(image_samples.decode_pillow(data)))


def _make_v2(task: LoadTask) -> WorkerLoader:
    built = to_torchvision.build_v2(task.recipe, rank_seed(task.settings))
    return WorkerLoader(task, ImageSamples(task.photos, _decode_to_tensor, built.apply), built.missing, FinishOnDevice(task))


PILLOW_V2 = LoaderKind("pillow-v2", "DataLoader, Pillow, torchvision v2 on uint8", needs("PIL", "torchvision"), _make_v2)
