"""Workers only decode; the device augments. Images are sent at full size, which trades CPU time for transport."""

import math
from collections.abc import Callable

import torch

from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.simplejpeg_v2 import to_tensor
from feedline.pipelines.loaders.workers import Finish, WorkerLoader
from feedline.pipelines.translate import v2


def _unchanged(image: torch.Tensor) -> torch.Tensor:
    return image


Shapes = tuple[tuple[int, int, int], ...]


def flat(samples: list[tuple[torch.Tensor, int]]) -> tuple[list[torch.Tensor | Shapes], torch.Tensor]:
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

    def __init__(self, task: Task, augment: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.augment = augment
        self.finish = Finish(task)

    def __call__(self, sent: tuple[torch.Tensor, Shapes]) -> torch.Tensor:
        together, shapes = sent
        parts = together.split([math.prod(shape) for shape in shapes])
        images = [self.augment(part.view(shape).permute(2, 0, 1)) for part, shape in zip(parts, shapes, strict=True)]
        return self.finish(torch.stack(images))


def make(task: Task) -> WorkerLoader:
    built = v2.build(task.recipe, seed_of_rank(task.settings))
    return WorkerLoader(task, Samples(task.photos, to_tensor, _unchanged), built.missing, _OnDevice(task, built.apply), flat)


KIND = LoaderKind(
    "gpu-augment",
    "DataLoader, libjpeg-turbo in workers, torchvision v2 on the GPU",
    needs("simplejpeg", "PIL", "torchvision", gpu=True),
    make,
)
