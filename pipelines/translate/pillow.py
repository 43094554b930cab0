"""torchvision's v1 operations on PIL images: the reference for the other translations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.finish import finish
from feedline.pipelines.translate.missing import known, load, unknown
from feedline.pipelines.translate.operations import Operation
from feedline.pipelines.translate.recipe import Built, Recipe, flat
from feedline.pipelines.translate.torchvision_calls import perform
from feedline.pipelines.translate.transform_rng import TransformRng

if TYPE_CHECKING:
    from PIL.Image import Image


class OnPillow:
    """Callable on a PIL RGB image; returns float32 [3, h, w], normalised. Threads may share it."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.recipe = recipe
        self.operations: Sequence[Operation] = recipe.images
        self.dice = TransformRng(seed)

    def __call__(self, image: "Image") -> torch.Tensor:
        return finish(self.recipe, self.pixels(image)[None], self.dice.here())[0]

    def pixels(self, image: "Image") -> torch.Tensor:
        """The same up to uint8 [3, h, w]."""
        from torchvision.transforms import functional

        dice = self.dice.here()
        for operation in self.operations:
            for fixed in draw(operation, dice, (image.height, image.width)):
                image = perform(functional, image, fixed, (image.height, image.width))
        return functional.pil_to_tensor(image)


def differs(recipe: Recipe) -> tuple[str, ...]:
    """Options that torchvision supports on tensors only."""
    found = []
    for operation in flat(recipe.operations):
        if isinstance(operation, (of.Resize, of.RandomResizedCrop)) and not operation.antialias and operation.interpolation != "nearest":
            found.append(f"{operation.name}: antialias=False works for tensors only; Pillow always antialiases when it shrinks")
    return tuple(found)


def build(recipe: Recipe, seed: int = 0) -> Built:
    """Translate to torchvision v1 on PIL images.

    Args:
        seed: of the random operations; give every rank its own.

    Raises:
        MissingDependency: torchvision or Pillow is not installed.
    """
    load("torchvision", "PIL")
    does = known(recipe)
    return Built(OnPillow(does, seed), unknown(recipe), differs(recipe), does)
