"""Operations in a DALI pipeline, with torchvision's pixel conventions and distributions.

Measured against torchvision on PIL images (tests/translate/test_pixels.py holds the bounds):
geometry is exact to a pixel, values to a gray level or two. Two things have the same parameters and
other pixels: hue, which DALI turns in YIQ and torchvision in HSV, and warps of bilinear
interpolation along the edge of the image, which DALI mixes with the fill.

Numbers are the same for every image (Python's) or different for each (DALI's); one set of functions
does both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import nvidia.dali.math as dali_math
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.image_operations import ImageOperation

_Number: TypeAlias = Any  # float, int, or a DataNode of one number for each image
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, Pillow's weights for L
_MODES = {
    "nearest": types.INTERP_NN,
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
    "lanczos": types.INTERP_LANCZOS3,
}


def _floor(number: _Number) -> _Number:
    return (
        fn.cast(dali_math.floor(number), dtype=types.INT64)
        if isinstance(number, DataNode)
        else math.floor(number)
    )


def _nearest(number: _Number) -> _Number:
    """Return the nearest whole number, halves up."""
    return _floor(number + 0.5)


def _least(first: _Number, second: _Number) -> _Number:
    return (
        dali_math.min(first, second)
        if isinstance(first, DataNode) or isinstance(second, DataNode)
        else min(first, second)
    )


def _most(first: _Number, second: _Number) -> _Number:
    return (
        dali_math.max(first, second)
        if isinstance(first, DataNode) or isinstance(second, DataNode)
        else max(first, second)
    )


def _half_to_even(number: _Number) -> _Number:
    """Halve a whole number >= 0, with halves rounded to even as in Python's ``round``."""
    odd = number - number // 2 * 2
    return number // 2 + odd * (number // 2 - number // 4 * 2)


def _cosine(number: _Number) -> _Number:
    return dali_math.cos(number) if isinstance(number, DataNode) else math.cos(number)


def _sine(number: _Number) -> _Number:
    return dali_math.sin(number) if isinstance(number, DataNode) else math.sin(number)


def _root(number: _Number) -> _Number:
    return dali_math.sqrt(number) if isinstance(number, DataNode) else math.sqrt(number)


def _vector(numbers: Sequence[_Number], dtype: Any = None) -> Any:
    """Join several numbers to one argument of an operator, float32 by default."""
    if not any(isinstance(number, DataNode) for number in numbers):
        return list(numbers)
    wanted = types.FLOAT if dtype is None else dtype
    nodes = [
        number
        if isinstance(number, DataNode)
        else fn.constant(fdata=[float(number)], shape=[], dtype=types.FLOAT)
        for number in numbers
    ]
    return fn.stack(*[fn.cast(node, dtype=wanted) for node in nodes])


def _uniform(low: float, high: float) -> _Number:
    """Draw a number between two, per image; the number itself if they are equal."""
    return low if low == high else fn.random.uniform(range=(low, high))


def _coin(probability: float) -> _Number:
    """Draw 0 or 1, per image."""
    return 1 if probability >= 1 else fn.random.coin_flip(probability=max(probability, 0.0))


@dataclass(frozen=True)
class DaliImages:
    """Images in a pipeline, and their size.

    Attributes:
        node: uint8 HWC on the CPU or the GPU.
        height, width: a number of Python where all images have the same, else int64 nodes on the
            CPU.
    """

    node: Any
    height: _Number
    width: _Number


def _cut(
    images: DaliImages,
    top: _Number,
    left: _Number,
    height: _Number,
    width: _Number,
    fill: of.Fill | None = (0.0,),
) -> DaliImages:
    """Crop a rectangle, which may exceed the image; the outside gets ``fill``.

    Without a fill, that is an error when the pipeline runs.
    """
    box = _vector([top, left, height, width], types.INT32)
    outside: dict[str, Any] = {"out_of_bounds_policy": "error"}
    if fill is not None:
        outside = {
            "out_of_bounds_policy": "pad",
            "fill_values": list(fill * 3 if len(fill) == 1 else fill),
        }
    return DaliImages(
        fn.slice(images.node, start=box[0:2], shape=box[2:4], axes=[0, 1], **outside), height, width
    )


def _wanted_size(images: DaliImages, operation: of.Resize) -> tuple[_Number, _Number]:
    """Do as ``Resize.result_size``, in whole numbers."""
    if not isinstance(operation.size, int):
        return operation.size
    shorter, longer = _least(images.height, images.width), _most(images.height, images.width)
    sides = [operation.size * side // shorter for side in (images.height, images.width)]
    if operation.max_size is None:
        return sides[0], sides[1]
    long = operation.size * longer // shorter
    over = (long > operation.max_size) * 1
    shrunk = [operation.max_size * side // long for side in sides]
    return over * shrunk[0] + (1 - over) * sides[0], over * shrunk[1] + (1 - over) * sides[1]


def _resize(images: DaliImages, operation: of.Resize) -> DaliImages:
    height, width = _wanted_size(images, operation)
    mode = _MODES.get(operation.interpolation, types.INTERP_LINEAR)
    node = fn.resize(
        images.node, size=_vector([height, width]), interp_type=mode, antialias=operation.antialias
    )
    return DaliImages(node, height, width)


def _center_crop(images: DaliImages, operation: of.CenterCrop) -> DaliImages:
    starts = []
    for has, wants in ((images.height, operation.size[0]), (images.width, operation.size[1])):
        starts.append(_half_to_even(_most(has - wants, 0)) - _most(wants - has, 0) // 2)
    return _cut(images, starts[0], starts[1], *operation.size)


def _crop(images: DaliImages, operation: of.Crop) -> DaliImages:
    height = _least(_most(_nearest(images.height * operation.height), 1), images.height)
    width = _least(_most(_nearest(images.width * operation.width), 1), images.width)
    top = _least(_most(_nearest(images.height * operation.top), 0), images.height - height)
    left = _least(_most(_nearest(images.width * operation.left), 0), images.width - width)
    return _cut(images, top, left, height, width)


def _pad(images: DaliImages, operation: of.Pad) -> DaliImages:
    left, top, right, bottom = operation.padding
    return _cut(
        images,
        -top,
        -left,
        images.height + top + bottom,
        images.width + left + right,
        operation.fill,
    )


def _pad_to_size(images: DaliImages, operation: of.PadToSize) -> DaliImages:
    down = _most(operation.size[0] - images.height, 0)
    across = _most(operation.size[1] - images.width, 0)
    return _cut(
        images,
        -1 * down,
        -1 * across,
        images.height + 2 * down,
        images.width + 2 * across,
        operation.fill,
    )


def _random_crop(images: DaliImages, operation: of.RandomCrop) -> DaliImages:
    if operation.padding is not None:
        images = _pad(images, of.Pad(operation.padding, operation.fill))
    if operation.pad_if_needed:
        images = _pad_to_size(images, of.PadToSize(operation.size, operation.fill))
    starts = []
    for has, wants in ((images.height, operation.size[0]), (images.width, operation.size[1])):
        places = has - wants + 1
        starts.append(_least(_floor(fn.random.uniform(range=(0.0, 1.0)) * places), places - 1))
    # torchvision raises too when it does not fit
    return _cut(images, starts[0], starts[1], *operation.size, fill=None)


def _flip(images: DaliImages, horizontal: _Number = 0, vertical: _Number = 0) -> DaliImages:
    return replace(images, node=fn.flip(images.node, horizontal=horizontal, vertical=vertical))


def _adjust(images: DaliImages, kind: str, factor: _Number) -> DaliImages:
    """Change brightness, contrast, saturation or hue by a factor (hue: a shift)."""
    node = images.node
    match kind:
        case "brightness":
            node = fn.brightness(node, brightness=factor)
        case "saturation":
            node = fn.saturation(node, saturation=factor)
        case "hue":
            node = fn.hue(node, hue=factor * 360.0)
        case "contrast":
            node = _contrast(node, factor)
    return replace(images, node=node)


def _contrast(node: Any, factor: _Number) -> Any:
    """Increase or decrease the difference from the mean gray level of each image."""
    mean = fn.reductions.mean(node, axis_names="HW", keep_dims=True)
    weights = fn.constant(fdata=list(_LUMA), shape=[1, 1, 3], device=node.device)
    if node.device == "cpu":
        return fn.contrast(
            node, contrast=factor, contrast_center=fn.reductions.sum(mean * weights, axes=[0, 1, 2])
        )
    # on the GPU, where an argument cannot be
    center = fn.reductions.sum(mean * weights, axis_names="C", keep_dims=True)
    return fn.cast_like(center + (node - center) * factor, node)


def _blur(images: DaliImages, kernel: of.Size, sigma: _Number) -> DaliImages:
    return replace(
        images, node=fn.gaussian_blur(images.node, window_size=[kernel[1], kernel[0]], sigma=sigma)
    )


def _warp(
    images: DaliImages,
    settings: of.RandomAffine,
    angle: _Number,
    move: tuple[_Number, _Number],
    scale: _Number,
    shear: tuple[_Number, _Number],
) -> DaliImages:
    """Rotate clockwise, scale and shear about the center, then translate.

    The matrix is that of ``_source_matrix`` in albumentations_calls.py, written out.

    Args:
        images: to be warped.
        settings: for its interpolation, fill and center.
        angle: degrees.
        move: (x, y) in pixels.
        scale: factor.
        shear: (x, y) in degrees.
    """
    radians = math.pi / 180
    c, s = _cosine(angle * radians), _sine(angle * radians)
    tangent_x, tangent_y = (_sine(value * radians) / _cosine(value * radians) for value in shear)
    # the first column of turn @ shear_y; the second is (-s, c)
    a, b = c + s * tangent_y, s - c * tangent_y
    rows = [(c - b * tangent_x) / scale, (s + a * tangent_x) / scale, -1 * b / scale, a / scale]
    x, y = settings.center or (images.width / 2, images.height / 2)
    from_x, from_y = -1 * (x + move[0]), -1 * (y + move[1])
    matrix = _vector(
        [
            rows[0],
            rows[1],
            rows[0] * from_x + rows[1] * from_y + x,
            rows[2],
            rows[3],
            rows[2] * from_x + rows[3] * from_y + y,
        ]
    )
    matrix = matrix if isinstance(matrix, list) else fn.reshape(matrix, shape=[2, 3])
    mode = types.INTERP_NN if settings.interpolation == "nearest" else types.INTERP_LINEAR
    return replace(
        images,
        node=fn.warp_affine(
            images.node, matrix=matrix, interp_type=mode, fill_value=settings.fill[0]
        ),
    )


def _affine(images: DaliImages, operation: of.Affine) -> DaliImages:
    settings = of.RandomAffine(
        (0, 0), interpolation=operation.interpolation, fill=operation.fill, center=operation.center
    )
    move = (
        _nearest(operation.translate[0] * images.width),
        _nearest(operation.translate[1] * images.height),
    )
    return _warp(images, settings, operation.angle, move, operation.scale, operation.shear)


def _rotate(images: DaliImages, operation: of.Rotate) -> DaliImages:
    return _affine(
        images,
        of.Affine(
            -operation.angle,
            interpolation=operation.interpolation,
            fill=operation.fill,
            center=operation.center,
        ),
    )


_FIXED: dict[type[ImageOperation], Callable[[DaliImages, Any], DaliImages]] = {
    of.Resize: _resize,
    of.CenterCrop: _center_crop,
    of.Crop: _crop,
    of.Pad: _pad,
    of.PadToSize: _pad_to_size,
    of.Flip: lambda images, operation: _flip(
        images, int(operation.horizontal), int(not operation.horizontal)
    ),
    of.Adjust: lambda images, operation: _adjust(images, operation.kind, operation.factor),
    of.Grayscale: lambda images, _: _adjust(images, "saturation", 0.0),
    of.Blur: lambda images, operation: _blur(images, operation.kernel, operation.sigma),
    of.Affine: _affine,
    of.Rotate: _rotate,
}


def perform_dali(images: DaliImages, operation: ImageOperation) -> DaliImages:
    """Apply one operation, random or not, of those that DALI can do."""
    return (_FIXED.get(type(operation)) or _RANDOM[type(operation)])(images, operation)


def _random_window(height: Any, width: Any, scale: of.Range, ratio: of.Range) -> tuple[Any, Any]:
    """Draw a rectangle.

    Args:
        height: of the image.
        width: of the image.
        scale: range of its share of the area.
        ratio: range of width to height, drawn log-uniformly.

    Returns:
        (top, left) and (height, width), int64 [2] for each image.
    """
    shape = _vector([height, width], types.INT64)
    if isinstance(shape, list):
        shape = fn.constant(idata=shape, shape=[2], dtype=types.INT64)
    return fn.random_crop_generator(
        shape, random_area=list(scale), random_aspect_ratio=list(ratio), num_attempts=10
    )


def _random_resized_crop(images: DaliImages, operation: of.RandomResizedCrop) -> DaliImages:
    start, shape = _random_window(images.height, images.width, operation.scale, operation.ratio)
    cropped = _cut(images, start[0], start[1], shape[0], shape[1])
    return _resize(
        cropped, of.Resize(operation.size, operation.interpolation, antialias=operation.antialias)
    )


def _jitter(images: DaliImages, operation: of.ColorJitter) -> DaliImages:
    for kind in ("brightness", "contrast"):
        between = getattr(operation, kind)
        if between is not None:
            images = _adjust(images, kind, _uniform(*between))
    if operation.saturation is None and operation.hue is None:
        return images
    saturation = _uniform(*operation.saturation) if operation.saturation else 1.0
    hue = _uniform(*operation.hue) * 360.0 if operation.hue else 0.0
    # both in one pass
    return replace(images, node=fn.hsv(images.node, hue=hue, saturation=saturation))


def _random_gray(images: DaliImages, operation: of.RandomGrayscale) -> DaliImages:
    return _adjust(images, "saturation", 1.0 - _coin(operation.p))


def _random_affine(images: DaliImages, operation: of.RandomAffine) -> DaliImages:
    across, down = operation.translate or (0.0, 0.0)
    move = (
        _nearest(_uniform(-across, across) * images.width),
        _nearest(_uniform(-down, down) * images.height),
    )
    x_from, x_to, y_from, y_to = operation.shear or (0.0, 0.0, 0.0, 0.0)
    scale = _uniform(*operation.scale) if operation.scale else 1.0
    return _warp(
        images,
        operation,
        _uniform(*operation.degrees),
        move,
        scale,
        (_uniform(x_from, x_to), _uniform(y_from, y_to)),
    )


def _random_rotation(images: DaliImages, operation: of.RandomRotation) -> DaliImages:
    settings = of.RandomAffine(
        (0, 0), interpolation=operation.interpolation, fill=operation.fill, center=operation.center
    )
    return _warp(images, settings, -1 * _uniform(*operation.degrees), (0, 0), 1.0, (0.0, 0.0))


def _some(images: DaliImages, operation: of.RandomApply) -> DaliImages:
    """Do operations to all images and keep them for some.

    DALI's conditions would have to be written into the caller's pipeline.
    """
    done = images
    for inner in operation.operations:
        done = perform_dali(done, inner)
    kept = fn.cast(_coin(operation.p), dtype=types.UINT8) if operation.p < 1 else None
    if kept is None:
        return done
    left = fn.cast(1 - kept, dtype=types.UINT8)  # with a number of Python, DALI makes it int32
    return replace(images, node=done.node * kept + images.node * left)


_RANDOM: dict[type[ImageOperation], Callable[[DaliImages, Any], DaliImages]] = {
    of.RandomHorizontalFlip: lambda images, operation: _flip(images, horizontal=_coin(operation.p)),
    of.RandomVerticalFlip: lambda images, operation: _flip(images, vertical=_coin(operation.p)),
    of.RandomGrayscale: _random_gray,
    of.RandomResizedCrop: _random_resized_crop,
    of.RandomCrop: _random_crop,
    of.ColorJitter: _jitter,
    of.GaussianBlur: lambda images, operation: _blur(
        images, operation.kernel, _uniform(*operation.sigma)
    ),
    of.RandomAffine: _random_affine,
    of.RandomRotation: _random_rotation,
    of.RandomApply: _some,
}


def decode(
    encoded: Any, operations: list[ImageOperation], device: str
) -> tuple[DaliImages, list[ImageOperation]]:
    """Decode images; of a random crop that comes first, only the crop.

    Args:
        encoded: a CPU DataNode of bytes.
        operations: to be done on the images.
        device: ``cpu`` or ``mixed``.

    Returns:
        The images and the operations left to do.
    """
    options = {
        "device": device,
        "output_type": types.RGB,
        "adjust_orientation": False,
        "jpeg_fancy_upsampling": True,
    }
    first = operations[0] if operations else None
    if isinstance(first, of.RandomResizedCrop):
        area, ratio = list(first.scale), list(first.ratio)
        node = fn.decoders.image_random_crop(
            encoded, random_area=area, random_aspect_ratio=ratio, num_attempts=10, **options
        )
        resized = _resize(
            DaliImages(node, None, None),
            of.Resize(first.size, first.interpolation, antialias=first.antialias),
        )
        return resized, operations[1:]
    node = fn.decoders.image(encoded, **options)
    shape = fn.peek_image_shape(encoded, adjust_orientation=False)
    return DaliImages(node, shape[0], shape[1]), operations


def erase(
    tensor: Any, operation: of.RandomErasing | of.Erase, size: of.Size | None, fill: list[float]
) -> Any:
    """Erase a rectangle of normalised images.

    Args:
        tensor: float32 CHW DataNode.
        operation: says which rectangle.
        size: (height, width) of all images; None: they differ.
        fill: one value a channel.
    """
    if size is None:
        shape = tensor.shape()
        height, width = shape[1], shape[2]
    else:
        height, width = size
    if isinstance(operation, of.Erase):
        start = _vector([operation.top * height, operation.left * width])
        extent = _vector([operation.height * height, operation.width * width])
    else:
        # RandomErasing's ratio is height to width
        wide = 1 / operation.ratio[1], 1 / operation.ratio[0]
        start, extent = _random_window(height, width, operation.scale, wide)
        start = fn.cast(start, dtype=types.FLOAT)
        extent = fn.cast(extent * _coin(operation.p), dtype=types.FLOAT)
    return fn.erase(tensor, anchor=start, shape=extent, axis_names="HW", fill_value=fill)
