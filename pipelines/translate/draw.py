"""Turns random operations into fixed ones, with the distributions of torchvision's ``get_params``.

The operations and ranges of RandAugment and TrivialAugmentWide are those of torchvision
(``torchvision.transforms.autoaugment``), which took them from the papers: RandAugment (Cubuk et al.
2019, arXiv:1909.13719) and TrivialAugment's "wide" space (Mueller and Hutter 2021,
arXiv:2103.10158).
"""

import math
import random
from dataclasses import dataclass, replace

from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.image_operations import ImageOperation, Range, Size, size_after

_ADJUSTMENTS = {
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpness",
}
_AUGMENT_NAMES = [
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    *_ADJUSTMENTS,
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
]
# torchvision's: a crop or an erased rectangle that does not fit is drawn again this many times
_MAX_TRIES = 10
_FIXED_BY_RANDOM: dict[type[ImageOperation], ImageOperation] = {
    of.RandomHorizontalFlip: of.Flip(horizontal=True),
    of.RandomVerticalFlip: of.Flip(horizontal=False),
    of.RandomGrayscale: of.Grayscale(),
}


@dataclass(frozen=True)
class _AugmentSpace:
    """Largest magnitudes.

    Shear is a tangent, translate (share of the width, pixels), rotate degrees, enhance |factor -
    1|.
    """

    shear: float
    translate_share: float
    translate_px: float
    rotate: float
    enhance: float
    posterize_bits: int


_RAND_SPACE = _AugmentSpace(
    shear=0.3, translate_share=150 / 331, translate_px=0, rotate=30, enhance=0.9, posterize_bits=4
)
_WIDE_SPACE = _AugmentSpace(
    shear=0.99, translate_share=0, translate_px=32, rotate=135, enhance=0.99, posterize_bits=6
)


def _rand_augment(
    operation: of.RandAugment, dice: random.Random, size: Size
) -> list[ImageOperation]:
    """Draw ``num_ops`` of the fourteen operations, all at one magnitude."""
    share = operation.magnitude / max(operation.num_magnitude_bins - 1, 1)
    drawn: list[ImageOperation] = []
    for _ in range(operation.num_ops):
        drawn += _augment_step(
            _RAND_SPACE,
            dice.choice(_AUGMENT_NAMES),
            share,
            dice.choice((1, -1)),
            size,
            operation.interpolation,
            operation.fill,
        )
    return drawn


def _trivial_augment_wide(
    operation: of.TrivialAugmentWide, dice: random.Random, size: Size
) -> list[ImageOperation]:
    """Draw one operation at any magnitude."""
    share = dice.randrange(operation.num_magnitude_bins) / max(operation.num_magnitude_bins - 1, 1)
    return _augment_step(
        _WIDE_SPACE,
        dice.choice(_AUGMENT_NAMES),
        share,
        dice.choice((1, -1)),
        size,
        operation.interpolation,
        operation.fill,
    )


def _augment_step(
    space: _AugmentSpace,
    name: str,
    share: float,
    sign: int,
    size: Size,
    interpolation: str,
    fill: of.Fill,
) -> list[ImageOperation]:
    """Make one operation of the space.

    Args:
        space: the largest magnitudes.
        name: of ``_AUGMENT_NAMES``.
        share: the magnitude, 0 to 1 of the largest.
        sign: 1 or -1, for operations that have one.
        size: (height, width) of the image.
        interpolation: of warps.
        fill: likewise.

    Returns:
        One fixed operation; none for Identity.
    """
    if name in _ADJUSTMENTS:
        return [of.Adjust(_ADJUSTMENTS[name], 1 + sign * share * space.enhance)]
    match name:
        case "ShearX" | "ShearY":
            degrees = math.degrees(math.atan(sign * share * space.shear))
            shear = (degrees, 0.0) if name == "ShearX" else (0.0, degrees)
            return [
                of.Affine(shear=shear, interpolation=interpolation, fill=fill, center=(0.0, 0.0))
            ]
        case "TranslateX" | "TranslateY":
            axis = 1 if name == "TranslateX" else 0
            pixels = int(sign * share * (space.translate_share * size[axis] + space.translate_px))
            moved = (pixels / size[1], 0.0) if axis else (0.0, pixels / size[0])
            return [of.Affine(translate=moved, interpolation=interpolation, fill=fill)]
        case "Rotate":
            return [of.Rotate(sign * share * space.rotate, interpolation, fill=fill)]
        case "Posterize":
            return [of.Tone("posterize", 8 - round(share * space.posterize_bits))]
        case "Solarize":
            return [of.Tone("solarize", 255 * (1 - share))]
        case "AutoContrast" | "Equalize":
            return [of.Tone(name.lower())]
    return []


def draw(
    operation: ImageOperation, dice: random.Random, size: Size, always: bool = False
) -> list[ImageOperation]:
    """Draw the fixed operations of ``operation`` for one image.

    Args:
        operation: any, random or not.
        dice: what to draw from.
        size: (height, width) of the image that it will be applied to.
        always: an operation that happens with a probability happens, and a crop is resized to its
            nominal size, so that the result fits images of another size as well.

    Raises:
        ValueError: RandomCrop is larger than the image (torchvision raises it too).
    """
    match operation:
        case of.RandomHorizontalFlip() | of.RandomVerticalFlip() | of.RandomGrayscale():
            return (
                [_FIXED_BY_RANDOM[type(operation)]] if always or dice.random() < operation.p else []
            )
        case of.RandomResizedCrop():
            return [
                _resized_crop(operation, dice, size),
                of.Resize(operation.size, operation.interpolation, antialias=operation.antialias),
            ]
        case of.RandomCrop():
            return _random_crop(operation, dice, size, always)
        case of.ColorJitter():
            return _color_jitter(operation, dice)
        case of.GaussianBlur():
            return [of.Blur(operation.kernel, dice.uniform(*operation.sigma))]
        case of.RandomAffine():
            return [_draw_affine(operation, dice)]
        case of.RandomRotation():
            angle = dice.uniform(*operation.degrees)
            return [
                of.Rotate(
                    angle,
                    operation.interpolation,
                    operation.expand,
                    operation.center,
                    operation.fill,
                )
            ]
        case of.RandAugment():
            return _rand_augment(operation, dice, size)
        case of.TrivialAugmentWide():
            return _trivial_augment_wide(operation, dice, size)
        case of.RandomErasing():
            return (
                _draw_erasing(operation, dice, size)
                if always or dice.random() < operation.p
                else []
            )
        case of.RandomApply():
            return (
                _draw_all(operation, dice, size, always)
                if always or dice.random() < operation.p
                else []
            )
    return [operation]


def _draw_all(
    operation: of.RandomApply, dice: random.Random, size: Size, always: bool
) -> list[ImageOperation]:
    fixed: list[ImageOperation] = []
    for inner in operation.operations:
        drawn = draw(inner, dice, size, always)
        size = size_after(drawn, size) or size
        fixed += drawn
    return fixed


def _rectangle(dice: random.Random, area: float, scale: Range, ratio: Range) -> tuple[float, float]:
    """Draw sides (a, b).

    a * b is a uniform share of ``area`` and a / b log-uniform in ``ratio``.
    """
    wanted = area * dice.uniform(*scale)
    shape = math.exp(dice.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return math.sqrt(wanted * shape), math.sqrt(wanted / shape)


def _resized_crop(operation: of.RandomResizedCrop, dice: random.Random, size: Size) -> of.Crop:
    """Draw the crop of RandomResizedCrop.

    If ten do not fit, it is the largest centered one of an allowed shape.
    """
    rows, columns = size
    for _ in range(_MAX_TRIES):
        width, height = (
            round(side)
            for side in _rectangle(dice, rows * columns, operation.scale, operation.ratio)
        )
        if 0 < width <= columns and 0 < height <= rows:
            top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
            return of.Crop(top / rows, left / columns, height / rows, width / columns)
    width, height = columns, rows
    if columns / rows < min(operation.ratio):
        height = round(columns / min(operation.ratio))
    elif columns / rows > max(operation.ratio):
        width = round(rows * max(operation.ratio))
    return of.Crop(
        (rows - height) // 2 / rows,
        (columns - width) // 2 / columns,
        height / rows,
        width / columns,
    )


def _random_crop(
    operation: of.RandomCrop, dice: random.Random, size: Size, always: bool
) -> list[ImageOperation]:
    """Draw padding, then a crop at a random position."""
    fixed: list[ImageOperation] = []
    if operation.padding is not None:
        fixed.append(of.Pad(operation.padding, operation.fill, operation.mode))
    if operation.pad_if_needed:
        fixed.append(of.PadToSize(operation.size, operation.fill, operation.mode))
    rows, columns = size_after(fixed, size) or size
    height, width = operation.size
    if always:
        height, width = min(height, rows), min(width, columns)
    elif height > rows or width > columns:
        raise ValueError(
            f"RandomCrop of {height} x {width} pixels does not fit an image of {rows} x {columns}"
        )
    top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
    fixed.append(of.Crop(top / rows, left / columns, height / rows, width / columns))
    return [*fixed, of.Resize(operation.size)] if always else fixed


def _color_jitter(operation: of.ColorJitter, dice: random.Random) -> list[ImageOperation]:
    """Draw the adjustments, in random order."""
    ranges = {
        kind: getattr(operation, kind) for kind in ("brightness", "contrast", "saturation", "hue")
    }
    fixed: list[ImageOperation] = [
        of.Adjust(kind, dice.uniform(*between))
        for kind, between in ranges.items()
        if between is not None
    ]
    dice.shuffle(fixed)
    return fixed


def _draw_affine(operation: of.RandomAffine, dice: random.Random) -> of.Affine:
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


def _draw_erasing(
    operation: of.RandomErasing, dice: random.Random, size: Size
) -> list[ImageOperation]:
    """Draw one rectangle; none if ten did not fit."""
    rows, columns = size
    for _ in range(_MAX_TRIES):
        height, width = (
            round(side)
            for side in _rectangle(dice, rows * columns, operation.scale, operation.ratio)
        )
        if height < rows and width < columns:
            top, left = dice.randint(0, rows - height), dice.randint(0, columns - width)
            place = of.Erase(top / rows, left / columns, height / rows, width / columns)
            return [replace(place, value=operation.value, normalised=operation.normalised)]
    return []
