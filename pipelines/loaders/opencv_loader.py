"""OpenCV decodes, albumentations augments, on uint8 arrays; they become float32 on the device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders import image_samples
from feedline.pipelines.loaders.image_samples import ImageSamples, RgbArray
from feedline.pipelines.loaders.protocol import LoaderKind, LoadTask, rank_seed
from feedline.pipelines.loaders.workers import FinishOnDevice, WorkerLoader, limit_opencv_threads
from feedline.pipelines.translate import to_albumentations


@dataclass(frozen=True)
class _ToTensor:
    """Augment an array, and return it as uint8 [3, h, w]."""

    apply: Callable[[RgbArray], RgbArray]

    def __call__(self, pixels: RgbArray) -> torch.Tensor:
        return image_samples.as_tensor(self.apply(pixels))


def albumentations_loader(decoder: Callable[[bytes], RgbArray]) -> Callable[[LoadTask], WorkerLoader]:
    """A loader that augments with albumentations what ``decoder`` decodes."""

    def make(task: LoadTask) -> WorkerLoader:
        built = to_albumentations.build_albumentations(task.recipe, rank_seed(task.settings))
        samples = ImageSamples(task.photos, decoder, _ToTensor(built.apply))
        return WorkerLoader(task, samples, built.missing, FinishOnDevice(task), prepare=limit_opencv_threads)

    return make


OPENCV_ALBU = LoaderKind(
    "opencv-albu",
    "DataLoader, OpenCV, albumentations on uint8",
    needs("cv2", "albumentations"),
    albumentations_loader(image_samples.decode_opencv),
)
