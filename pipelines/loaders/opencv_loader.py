"""OpenCV decodes, albumentations augments, on uint8 arrays; they become float32 on the device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import (
    ImageSamples,
    RgbArray,
    as_tensor,
    decode_opencv,
)
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader
from feedline.pipelines.translate.to_albumentations import build_albumentations


@dataclass(frozen=True)
class _ToTensor:
    """Augments an array, and returns it as uint8 [3, h, w]."""

    apply: Callable[[RgbArray], RgbArray]

    def __call__(self, pixels: RgbArray) -> torch.Tensor:
        return as_tensor(self.apply(pixels))


def albumentations_loader(
    decoder: Callable[[bytes], RgbArray],
) -> Callable[[LoadTask], WorkerLoader]:
    """Return a function that makes a loader: albumentations augments what ``decoder`` decodes."""

    def make(task: LoadTask) -> WorkerLoader:
        built = build_albumentations(task.recipe, task.settings.rank_seed)
        samples = ImageSamples(task.photos, decoder, _ToTensor(built.apply))
        finish = FinishOnDevice(task)
        return WorkerLoader(task, samples, built.missing, finish, prepare=_limit_opencv_threads)

    return make


def _limit_opencv_threads(worker: int) -> None:
    """Stop OpenCV from starting a thread per core in every worker.

    The DataLoader limits torch's threads.
    """
    import cv2

    cv2.setNumThreads(0)


LOADERS = (
    LoaderKind(
        "opencv-albu",
        "DataLoader, OpenCV, albumentations on uint8",
        needs("cv2", "albumentations"),
        albumentations_loader(decode_opencv),
    ),
)
