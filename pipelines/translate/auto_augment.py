"""RandAugment and TrivialAugmentWide as draws of single operations.

The operations and ranges are those of torchvision (``torchvision.transforms.autoaugment``), which took them from the papers: RandAugment
(Cubuk et al. 2019, arXiv:1909.13719) and TrivialAugment's "wide" space (Mueller and Hutter 2021, arXiv:2103.10158).
"""

import math
import random
from dataclasses import dataclass

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.operations import Operation, Size

ADJUSTMENTS = {"Brightness": "brightness", "Color": "saturation", "Contrast": "contrast", "Sharpness": "sharpness"}
NAMES = [
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    *ADJUSTMENTS,
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
]


@dataclass(frozen=True)
class Space:
    """Largest magnitudes: shear as a tangent, translate as (share of the width, pixels), rotate in degrees, enhance as |factor - 1|."""

    shear: float
    translate_share: float
    translate_px: float
    rotate: float
    enhance: float
    posterize_bits: int


RAND = Space(shear=0.3, translate_share=150 / 331, translate_px=0, rotate=30, enhance=0.9, posterize_bits=4)
WIDE = Space(shear=0.99, translate_share=0, translate_px=32, rotate=135, enhance=0.99, posterize_bits=6)


def rand_augment(operation: of.RandAugment, dice: random.Random, size: Size) -> list[Operation]:
    """``num_ops`` operations, any of the fourteen with the same probability, all at one magnitude."""
    share = operation.magnitude / max(operation.num_magnitude_bins - 1, 1)
    drawn: list[Operation] = []
    for _ in range(operation.num_ops):
        drawn += step(RAND, dice.choice(NAMES), share, dice.choice((1, -1)), size, operation.interpolation, operation.fill)
    return drawn


def trivial_augment_wide(operation: of.TrivialAugmentWide, dice: random.Random, size: Size) -> list[Operation]:
    """One operation at any magnitude."""
    share = dice.randrange(operation.num_magnitude_bins) / max(operation.num_magnitude_bins - 1, 1)
    return step(WIDE, dice.choice(NAMES), share, dice.choice((1, -1)), size, operation.interpolation, operation.fill)


def step(space: Space, name: str, share: float, sign: int, size: Size, interpolation: str, fill: of.Fill) -> list[Operation]:
    """One operation of the space. Returns one fixed operation; none for Identity.

    Args:
        share: the magnitude, 0 to 1 of the largest.
        sign: 1 or -1, for operations that have one.
        size: (height, width) of the image.
    """
    if name in ADJUSTMENTS:
        return [of.Adjust(ADJUSTMENTS[name], 1 + sign * share * space.enhance)]
    match name:
        case "ShearX" | "ShearY":
            degrees = math.degrees(math.atan(sign * share * space.shear))
            shear = (degrees, 0.0) if name == "ShearX" else (0.0, degrees)
            return [of.Affine(shear=shear, interpolation=interpolation, fill=fill, center=(0.0, 0.0))]
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
