"""OpenCV decodes, albumentations augments, on uint8 arrays; they become float32 on the device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.decode import Pixels
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import Finish, WorkerLoader, opencv_alone
from feedline.pipelines.translate import albumentations


@dataclass(frozen=True)
class _ToTensor:
    """Augment an array, and return it as uint8 [3, h, w]."""

    apply: Callable[[Pixels], Pixels]

    def __call__(self, pixels: Pixels) -> torch.Tensor:
        return decode.as_tensor(self.apply(pixels))


def make_with(decoder: Callable[[bytes], Pixels]) -> Callable[[Task], WorkerLoader]:
    """A loader that augments with albumentations what ``decoder`` decodes."""

    def make(task: Task) -> WorkerLoader:
        built = albumentations.build(task.recipe, seed_of_rank(task.settings))
        samples = Samples(task.photos, decoder, _ToTensor(built.apply))
        return WorkerLoader(task, samples, built.missing, Finish(task), prepare=opencv_alone)

    return make


KIND = LoaderKind("opencv-albu", "DataLoader, OpenCV, albumentations on uint8", needs("cv2", "albumentations"), make_with(decode.opencv))
