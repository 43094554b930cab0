"""libjpeg-turbo decodes, torchvision v2 augments uint8 tensors; they become float32 on the device."""

import math
from collections.abc import Callable

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders import image_samples
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.opencv_loader import albumentations_loader
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask, rank_seed
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.translate import to_torchvision


def decode_to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return image_samples.as_tensor(image_samples.decode_libjpeg(data))


def make_simplejpeg_v2(task: LoadTask) -> WorkerLoader:
    built = to_torchvision.build_v2(task.recipe, rank_seed(task.settings))
    return WorkerLoader(task, ImageSamples(task.photos, decode_to_tensor, built.apply), built.missing, FinishOnDevice(task))


SIMPLEJPEG_V2 = LoaderKind(
    "simplejpeg-v2", "DataLoader, libjpeg-turbo, torchvision v2 on uint8", needs("simplejpeg", "PIL", "torchvision"), make_simplejpeg_v2
)


SIMPLEJPEG_ALBU = LoaderKind(
    "simplejpeg-albu",
    "DataLoader, libjpeg-turbo, albumentations on uint8",
    needs("simplejpeg", "PIL", "cv2", "albumentations"),
    albumentations_loader(image_samples.decode_libjpeg),
)


def _unchanged(image: torch.Tensor) -> torch.Tensor:
    return image


_Shapes = tuple[tuple[int, int, int], ...]


def flatten_images(samples: list[tuple[torch.Tensor, int]]) -> tuple[list[torch.Tensor | _Shapes], torch.Tensor]:
    """Images of any size as one tensor in shared memory: one file descriptor and one copy to the device for the whole batch.

    Returns:
        ([uint8 [sum of h * w * 3], (h, w, 3) of each], int64 [n]: index).
    """
    images = [image.permute(1, 2, 0) for image, _ in samples]
    together = torch.empty(sum(image.numel() for image in images), dtype=torch.uint8).share_memory_()
    torch.cat([image.reshape(-1) for image in images], out=together)
    shapes = tuple((image.shape[0], image.shape[1], 3) for image in images)
    return [together, shapes], torch.tensor([index for _, index in samples])


class _OnDevice:
    """Separates the images again, augments each with its own parameters, then stacks and finishes them."""

    def __init__(self, task: LoadTask, augment: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.augment = augment
        self.finish = FinishOnDevice(task)

    def __call__(self, sent: tuple[torch.Tensor, _Shapes]) -> torch.Tensor:
        together, shapes = sent
        parts = together.split([math.prod(shape) for shape in shapes])
        images = [self.augment(part.view(shape).permute(2, 0, 1)) for part, shape in zip(parts, shapes, strict=True)]
        return self.finish(torch.stack(images))


def make_gpu_augment(task: LoadTask) -> WorkerLoader:
    built = to_torchvision.build_v2(task.recipe, rank_seed(task.settings))
    return WorkerLoader(
        task, ImageSamples(task.photos, decode_to_tensor, _unchanged), built.missing, _OnDevice(task, built.apply), flatten_images
    )


GPU_AUGMENT = LoaderKind(
    "gpu-augment",
    "DataLoader, libjpeg-turbo in workers, torchvision v2 on the GPU",
    needs("simplejpeg", "PIL", "torchvision", gpu=True),
    make_gpu_augment,
)
