"""Operations on decoded images in a DALI pipeline, with torchvision's pixel conventions.

Measured against torchvision on PIL images (tests/translate/test_pixels.py holds the bounds): geometry is exact to a pixel, values to a
gray level or two. Two things have the same parameters and other pixels: hue, which DALI turns in YIQ and torchvision in HSV, and warps of
bilinear interpolation along the edge of the image, which DALI mixes with the fill.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nvidia.dali import fn, types

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.dali_numbers import (
    Number,
    cosine,
    floor,
    half_to_even,
    least,
    most,
    nearest,
    sine,
    vector,
)
from feedline.pipelines.translate.operations import Operation

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, Pillow's weights for L


@dataclass(frozen=True)
class Images:
    """Images in a pipeline, and their size.

    Attributes:
        node: uint8 HWC on the CPU or the GPU.
        height, width: a number of Python where all images have the same, else int64 nodes on the CPU.
    """

    node: Any
    height: Number
    width: Number


def cut(images: Images, top: Number, left: Number, height: Number, width: Number, fill: of.Fill | None = (0.0,)) -> Images:
    """Crop a rectangle, which may exceed the image; the outside gets ``fill``. Without a fill, that is an error when the pipeline runs."""
    box = vector([top, left, height, width], types.INT32)
    outside: dict[str, Any] = {"out_of_bounds_policy": "error"}
    if fill is not None:
        outside = {"out_of_bounds_policy": "pad", "fill_values": list(fill * 3 if len(fill) == 1 else fill)}
    return Images(fn.slice(images.node, start=box[0:2], shape=box[2:4], axes=[0, 1], **outside), height, width)


def _wanted_size(images: Images, operation: of.Resize) -> tuple[Number, Number]:
    """As output_size.resized, in whole numbers."""
    if not isinstance(operation.size, int):
        return operation.size
    shorter, longer = least(images.height, images.width), most(images.height, images.width)
    sides = [operation.size * side // shorter for side in (images.height, images.width)]
    if operation.max_size is None:
        return sides[0], sides[1]
    long = operation.size * longer // shorter
    over = (long > operation.max_size) * 1
    shrunk = [operation.max_size * side // long for side in sides]
    return over * shrunk[0] + (1 - over) * sides[0], over * shrunk[1] + (1 - over) * sides[1]


_MODES = {
    "nearest": types.INTERP_NN,
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
    "lanczos": types.INTERP_LANCZOS3,
}


def resize(images: Images, operation: of.Resize) -> Images:
    height, width = _wanted_size(images, operation)
    mode = _MODES.get(operation.interpolation, types.INTERP_LINEAR)
    node = fn.resize(images.node, size=vector([height, width]), interp_type=mode, antialias=operation.antialias)
    return Images(node, height, width)


def _center_crop(images: Images, operation: of.CenterCrop) -> Images:
    starts = []
    for has, wants in ((images.height, operation.size[0]), (images.width, operation.size[1])):
        starts.append(half_to_even(most(has - wants, 0)) - most(wants - has, 0) // 2)
    return cut(images, starts[0], starts[1], *operation.size)


def crop(images: Images, operation: of.Crop) -> Images:
    height = least(most(nearest(images.height * operation.height), 1), images.height)
    width = least(most(nearest(images.width * operation.width), 1), images.width)
    top = least(most(nearest(images.height * operation.top), 0), images.height - height)
    left = least(most(nearest(images.width * operation.left), 0), images.width - width)
    return cut(images, top, left, height, width)


def pad(images: Images, operation: of.Pad) -> Images:
    left, top, right, bottom = operation.padding
    return cut(images, -top, -left, images.height + top + bottom, images.width + left + right, operation.fill)


def _pad_to_size(images: Images, operation: of.PadToSize) -> Images:
    down, across = most(operation.size[0] - images.height, 0), most(operation.size[1] - images.width, 0)
    return cut(images, -1 * down, -1 * across, images.height + 2 * down, images.width + 2 * across, operation.fill)


def random_crop(images: Images, operation: of.RandomCrop) -> Images:
    if operation.padding is not None:
        images = pad(images, of.Pad(operation.padding, operation.fill))
    if operation.pad_if_needed:
        images = _pad_to_size(images, of.PadToSize(operation.size, operation.fill))
    starts = []
    for has, wants in ((images.height, operation.size[0]), (images.width, operation.size[1])):
        places = has - wants + 1
        starts.append(least(floor(fn.random.uniform(range=(0.0, 1.0)) * places), places - 1))
    return cut(images, starts[0], starts[1], *operation.size, fill=None)  # torchvision raises too when it does not fit


def flip(images: Images, horizontal: Number = 0, vertical: Number = 0) -> Images:
    return replace(images, node=fn.flip(images.node, horizontal=horizontal, vertical=vertical))


def adjust(images: Images, kind: str, factor: Number) -> Images:
    """Brightness, contrast, saturation or hue by a factor (hue: a shift)."""
    node = images.node
    match kind:
        case "brightness":
            node = fn.brightness(node, brightness=factor)
        case "saturation":
            node = fn.saturation(node, saturation=factor)
        case "hue":
            node = fn.hue(node, hue=factor * 360.0)
        case "contrast":
            node = contrast(node, factor)
    return replace(images, node=node)


def contrast(node: Any, factor: Number) -> Any:
    """Increase or decrease the difference from the mean gray level of each image."""
    mean = fn.reductions.mean(node, axis_names="HW", keep_dims=True)
    weights = fn.constant(fdata=list(_LUMA), shape=[1, 1, 3], device=node.device)
    if node.device == "cpu":
        return fn.contrast(node, contrast=factor, contrast_center=fn.reductions.sum(mean * weights, axes=[0, 1, 2]))
    center = fn.reductions.sum(mean * weights, axis_names="C", keep_dims=True)  # on the GPU, where an argument cannot be
    return fn.cast_like(center + (node - center) * factor, node)


def blur(images: Images, kernel: of.Size, sigma: Number) -> Images:
    return replace(images, node=fn.gaussian_blur(images.node, window_size=[kernel[1], kernel[0]], sigma=sigma))


def warp(
    images: Images, settings: of.RandomAffine, angle: Number, move: tuple[Number, Number], scale: Number, shear: tuple[Number, Number]
) -> Images:
    """Rotate clockwise, scale and shear about the center, then translate; the matrix of warp.source_matrix, written out.

    Args:
        settings: for its interpolation, fill and center.
        angle, shear: degrees. move: (x, y) in pixels.
    """
    radians = math.pi / 180
    c, s = cosine(angle * radians), sine(angle * radians)
    tangent_x, tangent_y = (sine(value * radians) / cosine(value * radians) for value in shear)
    a, b = c + s * tangent_y, s - c * tangent_y  # the first column of turn @ shear_y; the second is (-s, c)
    rows = [(c - b * tangent_x) / scale, (s + a * tangent_x) / scale, -1 * b / scale, a / scale]
    x, y = settings.center or (images.width / 2, images.height / 2)
    from_x, from_y = -1 * (x + move[0]), -1 * (y + move[1])
    matrix = vector([rows[0], rows[1], rows[0] * from_x + rows[1] * from_y + x, rows[2], rows[3], rows[2] * from_x + rows[3] * from_y + y])
    matrix = matrix if isinstance(matrix, list) else fn.reshape(matrix, shape=[2, 3])
    mode = types.INTERP_NN if settings.interpolation == "nearest" else types.INTERP_LINEAR
    return replace(images, node=fn.warp_affine(images.node, matrix=matrix, interp_type=mode, fill_value=settings.fill[0]))


def _affine(images: Images, operation: of.Affine) -> Images:
    settings = of.RandomAffine((0, 0), interpolation=operation.interpolation, fill=operation.fill, center=operation.center)
    move = nearest(operation.translate[0] * images.width), nearest(operation.translate[1] * images.height)
    return warp(images, settings, operation.angle, move, operation.scale, operation.shear)


def _rotate(images: Images, operation: of.Rotate) -> Images:
    return _affine(images, of.Affine(-operation.angle, interpolation=operation.interpolation, fill=operation.fill, center=operation.center))


FIXED: dict[type[Operation], Callable[[Images, Any], Images]] = {
    of.Resize: resize,
    of.CenterCrop: _center_crop,
    of.Crop: crop,
    of.Pad: pad,
    of.PadToSize: _pad_to_size,
    of.Flip: lambda images, operation: flip(images, int(operation.horizontal), int(not operation.horizontal)),
    of.Adjust: lambda images, operation: adjust(images, operation.kind, operation.factor),
    of.Grayscale: lambda images, _: adjust(images, "saturation", 0.0),
    of.Blur: lambda images, operation: blur(images, operation.kernel, operation.sigma),
    of.Affine: _affine,
    of.Rotate: _rotate,
}
