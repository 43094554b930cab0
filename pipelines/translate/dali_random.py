"""Random operations in a DALI pipeline, with torchvision's distributions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nvidia.dali import fn, types

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.dali_calls import FIXED, Images, adjust, blur, cut, flip, random_crop, resize, warp
from feedline.pipelines.translate.dali_numbers import coin, nearest, uniform, vector
from feedline.pipelines.translate.operations import Operation


def perform(images: Images, operation: Operation) -> Images:
    """Apply one operation, random or not, of those that dali.py does not refuse."""
    return (FIXED.get(type(operation)) or _RANDOM[type(operation)])(images, operation)


def window(height: Any, width: Any, scale: of.Range, ratio: of.Range) -> tuple[Any, Any]:
    """A random rectangle.

    Args:
        scale: range of its share of the area; ratio: range of width to height, drawn log-uniformly.

    Returns:
        (top, left) and (height, width), int64 [2] for each image.
    """
    shape = vector([height, width], types.INT64)
    if isinstance(shape, list):
        shape = fn.constant(idata=shape, shape=[2], dtype=types.INT64)
    return fn.random_crop_generator(shape, random_area=list(scale), random_aspect_ratio=list(ratio), num_attempts=10)


def _resized_crop(images: Images, operation: of.RandomResizedCrop) -> Images:
    start, shape = window(images.height, images.width, operation.scale, operation.ratio)
    cropped = cut(images, start[0], start[1], shape[0], shape[1])
    return resize(cropped, of.Resize(operation.size, operation.interpolation, antialias=operation.antialias))


def _jitter(images: Images, operation: of.ColorJitter) -> Images:
    for kind in ("brightness", "contrast"):
        between = getattr(operation, kind)
        if between is not None:
            images = adjust(images, kind, uniform(*between))
    if operation.saturation is None and operation.hue is None:
        return images
    saturation = uniform(*operation.saturation) if operation.saturation else 1.0
    hue = uniform(*operation.hue) * 360.0 if operation.hue else 0.0
    return replace(images, node=fn.hsv(images.node, hue=hue, saturation=saturation))  # both in one pass


def _gray(images: Images, operation: of.RandomGrayscale) -> Images:
    return adjust(images, "saturation", 1.0 - coin(operation.p))


def _affine(images: Images, operation: of.RandomAffine) -> Images:
    across, down = operation.translate or (0.0, 0.0)
    move = nearest(uniform(-across, across) * images.width), nearest(uniform(-down, down) * images.height)
    x_from, x_to, y_from, y_to = operation.shear or (0.0, 0.0, 0.0, 0.0)
    scale = uniform(*operation.scale) if operation.scale else 1.0
    return warp(images, operation, uniform(*operation.degrees), move, scale, (uniform(x_from, x_to), uniform(y_from, y_to)))


def _rotation(images: Images, operation: of.RandomRotation) -> Images:
    settings = of.RandomAffine((0, 0), interpolation=operation.interpolation, fill=operation.fill, center=operation.center)
    return warp(images, settings, -1 * uniform(*operation.degrees), (0, 0), 1.0, (0.0, 0.0))


def _some(images: Images, operation: of.RandomApply) -> Images:
    """Done to all images and kept for some: DALI's conditions would have to be written into the caller's pipeline."""
    done = images
    for inner in operation.operations:
        done = perform(done, inner)
    kept = fn.cast(coin(operation.p), dtype=types.UINT8) if operation.p < 1 else None
    if kept is None:
        return done
    return replace(images, node=done.node * kept + images.node * (1 - kept))


_RANDOM: dict[type[Operation], Callable[[Images, Any], Images]] = {
    of.RandomHorizontalFlip: lambda images, operation: flip(images, horizontal=coin(operation.p)),
    of.RandomVerticalFlip: lambda images, operation: flip(images, vertical=coin(operation.p)),
    of.RandomGrayscale: _gray,
    of.RandomResizedCrop: _resized_crop,
    of.RandomCrop: random_crop,
    of.ColorJitter: _jitter,
    of.GaussianBlur: lambda images, operation: blur(images, operation.kernel, uniform(*operation.sigma)),
    of.RandomAffine: _affine,
    of.RandomRotation: _rotation,
    of.RandomApply: _some,
}
