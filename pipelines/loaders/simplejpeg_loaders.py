"""Loaders whose workers decode with libjpeg-turbo, through simplejpeg, to uint8.

``simplejpeg-v2`` augments with torchvision v2, ``simplejpeg-albu`` with albumentations; images
become float32 on the device. With ``gpu-augment`` workers only decode and the device augments:
images are sent at full size, which trades CPU time for transport.
"""

import math
from collections.abc import Callable

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import ImageSamples, as_tensor, decode_libjpeg
from feedline.pipelines.loaders.opencv_loader import albumentations_loader
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.translate.to_torchvision import build_v2

_Shapes = tuple[tuple[int, int, int], ...]


def decode_to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return as_tensor(decode_libjpeg(data))


def _make_v2(task: LoadTask) -> WorkerLoader:
    built = build_v2(task.recipe, task.settings.rank_seed)
    samples = ImageSamples(task.photos, decode_to_tensor, built.apply)
    return WorkerLoader(task, samples, built.missing, FinishOnDevice(task))


def _make_gpu_augment(task: LoadTask) -> WorkerLoader:
    built = build_v2(task.recipe, task.settings.rank_seed)
    samples = ImageSamples(task.photos, decode_to_tensor, _unchanged)
    augment = _AugmentOnDevice(task, built.apply)
    return WorkerLoader(task, samples, built.missing, augment, _flatten_images)


def _unchanged(image: torch.Tensor) -> torch.Tensor:
    return image


def _flatten_images(
    samples: list[tuple[torch.Tensor, int]],
) -> tuple[list[torch.Tensor | _Shapes], torch.Tensor]:
    """Join images of any size in one tensor in shared memory.

    The whole batch then takes one file descriptor and one copy to the device.

    Returns:
        ([uint8 [sum of h * w * 3], (h, w, 3) of each], int64 [n]: index).
    """
    images = [image.permute(1, 2, 0) for image, _ in samples]
    together = torch.empty(
        sum(image.numel() for image in images), dtype=torch.uint8
    ).share_memory_()
    torch.cat([image.reshape(-1) for image in images], out=together)
    shapes = tuple((image.shape[0], image.shape[1], 3) for image in images)
    return [together, shapes], torch.tensor([index for _, index in samples])


class _AugmentOnDevice:
    """Separates the images again, augments each on its own, stacks and finishes them."""

    def __init__(self, task: LoadTask, augment: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.augment = augment
        self.finish = FinishOnDevice(task)

    def __call__(self, sent: tuple[torch.Tensor, _Shapes]) -> torch.Tensor:
        together, shapes = sent
        parts = together.split([math.prod(shape) for shape in shapes])
        images = [
            self.augment(part.view(shape).permute(2, 0, 1))
            for part, shape in zip(parts, shapes, strict=True)
        ]
        return self.finish(torch.stack(images))


LOADERS = (
    LoaderKind(
        "simplejpeg-v2",
        "DataLoader, libjpeg-turbo, torchvision v2 on uint8",
        needs("simplejpeg", "PIL", "torchvision"),
        _make_v2,
    ),
    LoaderKind(
        "simplejpeg-albu",
        "DataLoader, libjpeg-turbo, albumentations on uint8",
        needs("simplejpeg", "PIL", "cv2", "albumentations"),
        albumentations_loader(decode_libjpeg),
    ),
    LoaderKind(
        "gpu-augment",
        "DataLoader, libjpeg-turbo in workers, torchvision v2 on the GPU",
        needs("simplejpeg", "PIL", "torchvision", gpu=True),
        _make_gpu_augment,
    ),
)
