"""Turns uint8 images into the model's input, on any device: scaling, normalising, erasing."""

import random

import torch

from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.operations import Erase
from feedline.pipelines.translate.recipe import Recipe

_dice = random.Random()  # seeded by the system, and of this module alone


def finish(recipe: Recipe, images: torch.Tensor, dice: random.Random | None = None) -> torch.Tensor:
    """Scale to 0 to 1, normalise, erase.

    Args:
        images: uint8 [n, 3, h, w].
        dice: for RandomErasing; None: unseeded.

    Returns:
        float32 [n, 3, h, w] on the device of ``images``.
    """
    batch = images.to(torch.float32)
    erasing = recipe.erasing
    if any(not operation.normalised for operation in erasing):
        batch = _erase(recipe, batch.div_(255), dice or _dice, normalised=False)
        batch = _normalise(recipe, batch, largest=1.0)
    else:
        batch = _normalise(recipe, batch, largest=255.0)
    return _erase(recipe, batch, dice or _dice, normalised=True)


def _normalise(recipe: Recipe, batch: torch.Tensor, largest: float) -> torch.Tensor:
    """Subtract the mean and divide by the deviation, in place.

    Args:
        batch: float32 [n, 3, h, w], 0 to ``largest``.
    """
    if recipe.mean is None or recipe.std is None:
        return batch.div_(largest) if largest != 1 else batch
    mean = torch.tensor(recipe.mean, device=batch.device).view(-1, 1, 1) * largest
    std = torch.tensor(recipe.std, device=batch.device).view(-1, 1, 1) * largest
    return batch.sub_(mean).div_(std)


def _erase(recipe: Recipe, batch: torch.Tensor, dice: random.Random, normalised: bool) -> torch.Tensor:
    height, width = batch.shape[-2:]
    for operation in recipe.erasing:
        if operation.normalised != normalised:
            continue
        for image in batch:
            for fixed in draw(operation, dice, (height, width)):
                assert isinstance(fixed, Erase)
                _erase_one(image, fixed, dice)
    return batch


def _erase_one(image: torch.Tensor, erase: Erase, dice: random.Random) -> None:
    rows, columns = image.shape[-2:]
    top, left = round(erase.top * rows), round(erase.left * columns)
    hole = image[:, top : top + round(erase.height * rows), left : left + round(erase.width * columns)]
    if erase.value is None:
        generator = torch.Generator().manual_seed(dice.getrandbits(63))
        hole.copy_(torch.randn(hole.shape, generator=generator))
    else:
        hole.copy_(torch.tensor(erase.value, device=image.device).view(-1, 1, 1))
