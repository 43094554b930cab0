"""Turns random operations into fixed ones, with the distributions of torchvision's ``get_params``."""

import math
import random
from dataclasses import replace

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.auto_augment import rand_augment, trivial_augment_wide
from feedline.pipelines.translate.operations import Operation, Range, Size
from feedline.pipelines.translate.output_size import size_after

NOMINAL_SIZE = (400, 500)  # (height, width) that shares are drawn for when there is no image: about the mean of ImageNet's files
_TRIES = 10  # torchvision's: a crop or an erased rectangle that does not fit is drawn again this many times


def draw(operation: Operation, dice: random.Random, size: Size, always: bool = False) -> list[Operation]:
    """The fixed operations of ``operation`` for one image.

    Args:
        size: (height, width) of the image that it will be applied to.
        always: an operation that happens with a probability happens, and a crop is resized to its nominal size, so that the result fits
            images of another size as well.

    Raises:
        ValueError: RandomCrop is larger than the image (torchvision raises it too).
    """
    match operation:
        case of.RandomHorizontalFlip() | of.RandomVerticalFlip() | of.RandomGrayscale():
            return [_ALONE[type(operation)]] if always or dice.random() < operation.p else []
        case of.RandomResizedCrop():
            return [_resized_crop(operation, dice, size), of.Resize(operation.size, operation.interpolation, antialias=operation.antialias)]
        case of.RandomCrop():
            return _random_crop(operation, dice, size, always)
        case of.ColorJitter():
            return _color_jitter(operation, dice)
        case of.GaussianBlur():
            return [of.Blur(operation.kernel, dice.uniform(*operation.sigma))]
        case of.RandomAffine():
            return [_affine(operation, dice)]
        case of.RandomRotation():
            angle = dice.uniform(*operation.degrees)
            return [of.Rotate(angle, operation.interpolation, operation.expand, operation.center, operation.fill)]
        case of.RandAugment():
            return rand_augment(operation, dice, size)
        case of.TrivialAugmentWide():
            return trivial_augment_wide(operation, dice, size)
        case of.RandomErasing():
            return erasing(operation, dice, size) if always or dice.random() < operation.p else []
        case of.RandomApply():
            return _some(operation, dice, size, always) if always or dice.random() < operation.p else []
    return [operation]


_ALONE: dict[type[Operation], Operation] = {
    of.RandomHorizontalFlip: of.Flip(horizontal=True),
    of.RandomVerticalFlip: of.Flip(horizontal=False),
    of.RandomGrayscale: of.Grayscale(),
}


def _some(operation: of.RandomApply, dice: random.Random, size: Size, always: bool) -> list[Operation]:
    fixed: list[Operation] = []
    for inner in operation.operations:
        drawn = draw(inner, dice, size, always)
        size = size_after(drawn, size) or size
        fixed += drawn
    return fixed


def _rectangle(dice: random.Random, area: float, scale: Range, ratio: Range) -> tuple[float, float]:
    """Sides (a, b) with a * b a uniform share of ``area`` and a / b log-uniform in ``ratio``."""
    wanted = area * dice.uniform(*scale)
    shape = math.exp(dice.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return math.sqrt(wanted * shape), math.sqrt(wanted / shape)


def _resized_crop(operation: of.RandomResizedCrop, dice: random.Random, size: Size) -> of.Crop:
    """The crop of RandomResizedCrop; if ten do not fit, the largest centered one of an allowed shape."""
    rows, columns = size
    for _ in range(_TRIES):
        width, height = (round(side) for side in _rectangle(dice, rows * columns, operation.scale, operation.ratio))
        if 0 < width <= columns and 0 < height <= rows:
            top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
            return of.Crop(top / rows, left / columns, height / rows, width / columns)
    width, height = columns, rows
    if columns / rows < min(operation.ratio):
        height = round(columns / min(operation.ratio))
    elif columns / rows > max(operation.ratio):
        width = round(rows * max(operation.ratio))
    return of.Crop((rows - height) // 2 / rows, (columns - width) // 2 / columns, height / rows, width / columns)


def _random_crop(operation: of.RandomCrop, dice: random.Random, size: Size, always: bool) -> list[Operation]:
    """Padding, then a crop at a random position."""
    fixed: list[Operation] = []
    if operation.padding is not None:
        fixed.append(of.Pad(operation.padding, operation.fill, operation.mode))
    if operation.pad_if_needed:
        fixed.append(of.PadToSize(operation.size, operation.fill, operation.mode))
    rows, columns = size_after(fixed, size) or size
    height, width = operation.size
    if always:
        height, width = min(height, rows), min(width, columns)
    elif height > rows or width > columns:
        raise ValueError(f"RandomCrop of {height} x {width} pixels does not fit an image of {rows} x {columns}")
    top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
    fixed.append(of.Crop(top / rows, left / columns, height / rows, width / columns))
    return [*fixed, of.Resize(operation.size)] if always else fixed


def _color_jitter(operation: of.ColorJitter, dice: random.Random) -> list[Operation]:
    """Its adjustments in random order."""
    ranges = {kind: getattr(operation, kind) for kind in ("brightness", "contrast", "saturation", "hue")}
    fixed: list[Operation] = [of.Adjust(kind, dice.uniform(*between)) for kind, between in ranges.items() if between is not None]
    dice.shuffle(fixed)
    return fixed


def _affine(operation: of.RandomAffine, dice: random.Random) -> of.Affine:
    angle = dice.uniform(*operation.degrees)
    across, down = operation.translate or (0.0, 0.0)
    x_from, x_to, y_from, y_to = operation.shear or (0.0, 0.0, 0.0, 0.0)
    return of.Affine(
        angle=angle,
        translate=(dice.uniform(-across, across), dice.uniform(-down, down)),
        scale=dice.uniform(*operation.scale) if operation.scale else 1.0,
        shear=(dice.uniform(x_from, x_to), dice.uniform(y_from, y_to)),
        interpolation=operation.interpolation,
        fill=operation.fill,
        center=operation.center,
    )


def erasing(operation: of.RandomErasing, dice: random.Random, size: Size) -> list[Operation]:
    """One rectangle; none if ten did not fit."""
    rows, columns = size
    for _ in range(_TRIES):
        height, width = (round(side) for side in _rectangle(dice, rows * columns, operation.scale, operation.ratio))
        if height < rows and width < columns:
            top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
            place = of.Erase(top / rows, left / columns, height / rows, width / columns)
            return [replace(place, value=operation.value, normalised=operation.normalised)]
    return []
