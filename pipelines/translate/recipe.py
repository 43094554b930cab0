"""The user's transforms as a list of plain operations, from which the translations are made."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from feedline.pipelines.translate.draw import NOMINAL_SIZE, draw
from feedline.pipelines.translate.operations import Erase, Operation, Random, RandomApply, RandomErasing, Unknown
from feedline.pipelines.translate.output_size import size_after
from feedline.pipelines.translate.reading import Reading

__all__ = ["Built", "Operation", "Recipe", "Unknown", "frozen", "read"]


@dataclass(frozen=True)
class Recipe:
    """Operations in order, from a decoded RGB image to the tensor.

    Conversions of type (ToTensor, PILToTensor, ToImage, ToDtype, ConvertImageDtype) are not in the list: every translation ends in float32.

    Attributes:
        mean, std: of the final Normalize, in units of 0 to 1; None: the tensor stays at 0 to 1. A transform that ends in a tensor of
            0 to 255 has a std of 1 / 255.
    """

    operations: Sequence[Operation]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def unknown(self) -> list[Unknown]:
        """The operations without a translation, including those inside RandomApply."""
        return [operation for operation in flat(self.operations) if isinstance(operation, Unknown)]

    @property
    def random(self) -> bool:
        """Whether two passes over one image can differ."""
        return any(isinstance(operation, Random) for operation in self.operations)

    @property
    def output_size(self) -> tuple[int, int] | None:
        """(height, width) of every image's tensor, or None if images of different size stay different."""
        return size_after(self.operations)

    @property
    def images(self) -> list[Operation]:
        """The operations on uint8 images: all except the erasing, which torchvision does on the finished tensor."""
        return [operation for operation in self.operations if not isinstance(operation, (RandomErasing, Erase))]

    @property
    def erasing(self) -> list[RandomErasing | Erase]:
        return [operation for operation in self.operations if isinstance(operation, (RandomErasing, Erase))]


@dataclass(frozen=True)
class Built:
    """A recipe translated to one library.

    Attributes:
        apply: pickles, so that it can be sent to a spawned worker.
        missing: operations that are left out, each with the reason: ``RandAugment: DALI has no ...``.
        differs: operations that are done with the same distribution of parameters but other pixels than torchvision, each with the reason.
        does: the recipe without what is missing.
    """

    apply: Callable[..., Any]
    missing: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    does: Recipe = Recipe(())


def flat(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Every operation; those inside RandomApply in its place."""
    for operation in operations:
        if isinstance(operation, RandomApply):
            yield from flat(operation.operations)
        else:
            yield operation


def read(transform: Any) -> Recipe:
    """Read torchvision transforms without importing torchvision.

    Args:
        transform: a Compose of ``torchvision.transforms`` or its ``v2``, an ``nn.Sequential``, a list, or one transform. Equal transforms
            of v1 and v2 give equal recipes. What is not torchvision's own (lambdas, functions, classes of the user's) becomes ``Unknown``.
    """
    reading = Reading()
    reading.add(transform)
    return Recipe(tuple(reading.operations), *reading.normalisation())


def frozen(recipe: Recipe, seed: int) -> Recipe:
    """The recipe with every random parameter drawn once, to compare pixels.

    A random crop becomes a fixed share of each image, drawn for one of 500 x 400; an operation that happens with some probability happens.
    """
    dice = random.Random(seed)
    size = NOMINAL_SIZE
    fixed: list[Operation] = []
    for operation in recipe.operations:
        drawn = draw(operation, dice, size, always=True)
        fixed += drawn
        size = size_after(drawn, size) or size
    return Recipe(tuple(fixed), recipe.mean, recipe.std)
