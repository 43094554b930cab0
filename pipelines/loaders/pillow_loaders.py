"""Loaders with Pillow and torchvision.

``pillow-v1`` applies the user's own transform in workers: what most trainings do, and the reference
for the other loaders. ``pillow-v1-uint8`` sends the same pixels in a quarter of the bytes.
``pillow-v2`` augments uint8 tensors with torchvision v2; they become float32 on the device.
"""

import numpy as np
import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import (
    ImageSamples,
    UserTransform,
    as_tensor,
    decode_pillow,
)
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.translate.to_torchvision import OnPillowImages, build_v1, build_v2


def reference_samples(task: LoadTask) -> tuple[ImageSamples, tuple[str, ...]]:
    """Return samples with the user's transform, and what is missing in it.

    Without a transform, the recipe is done with torchvision v1.
    """
    if task.transform is not None:
        return ImageSamples(task.photos, decode_pillow, UserTransform(task.transform)), ()
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
)
