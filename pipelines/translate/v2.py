"""Translation to torchvision.transforms.v2 on uint8 tensors: single images in workers, or whole batches on a GPU."""

from types import ModuleType

import torch

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.missing import known, load, unknown
from feedline.pipelines.translate.operations import Operation, Random
from feedline.pipelines.translate.recipe import Built, Recipe, flat
from feedline.pipelines.translate.torchvision_calls import PILLOW_ONLY, perform
from feedline.pipelines.translate.transform_rng import TransformRng


class _OnTensors:
    """Callable on uint8 [3, h, w], or on a batch [n, 3, h, w] whose images draw their parameters separately; returns uint8."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.operations = recipe.images
        self.dice = TransformRng(seed)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        for operation in self.operations:
            if images.ndim == 4 and isinstance(operation, Random):
                images = self._each(functional, images, operation)
            else:
                images = self._all(functional, images, operation)
        return images

    def _all(self, functional: ModuleType, images: torch.Tensor, operation: Operation) -> torch.Tensor:
        for fixed in draw(operation, self.dice.here(), _size(images)):
            images = perform(functional, images, fixed, _size(images))
        return images

    def _each(self, functional: ModuleType, images: torch.Tensor, operation: Random) -> torch.Tensor:
        if isinstance(operation, (of.RandomHorizontalFlip, of.RandomVerticalFlip)):
            dice = self.dice.here()
            chosen = torch.tensor([dice.random() < operation.p for _ in images], device=images.device)
            axis = -1 if isinstance(operation, of.RandomHorizontalFlip) else -2
            return torch.where(chosen.view(-1, 1, 1, 1), images.flip(axis), images)
        return torch.stack([self._all(functional, image, operation) for image in images])


def _size(images: torch.Tensor) -> tuple[int, int]:
    return images.shape[-2], images.shape[-1]


def differs(recipe: Recipe) -> tuple[str, ...]:
    """Interpolations that v2 supports for PIL images only."""
    found = []
    for operation in flat(recipe.operations):
        word = getattr(operation, "interpolation", None)
        resizes = isinstance(operation, (of.Resize, of.RandomResizedCrop))
        if word in PILLOW_ONLY and resizes:
            found.append(f"{operation.name}: tensors have no {word} interpolation; {PILLOW_ONLY[word]} is used")
        elif word not in (None, "nearest", "bilinear") and not resizes:
            found.append(f"{operation.name}: tensors have no {word} interpolation here; bilinear is used")
    return tuple(found)


def build(recipe: Recipe, seed: int = 0) -> Built:
    """Translate to torchvision v2 on uint8 tensors.

    Args:
        seed: of the random operations; give every rank its own.

    Raises:
        MissingDependency: torchvision is not installed, or has no v2.
    """
    load("torchvision.transforms.v2")
    does = known(recipe)
    return Built(_OnTensors(does, seed), unknown(recipe), differs(recipe), does)
