"""The size of an image after some operations, computed without an image."""

import math
from collections.abc import Sequence

from feedline.pipelines.translate.operations import (
    CenterCrop,
    Crop,
    Operation,
    Pad,
    PadToSize,
    RandomApply,
    RandomCrop,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    Rotate,
    Size,
    Unknown,
)


def resized(size: Size, operation: Resize) -> Size:
    """The (height, width) that torchvision's Resize makes of ``size``: the longer side is truncated to whole pixels, not rounded."""
    if not isinstance(operation.size, int):
        return operation.size
    short, long = min(size), max(size)
    new_short, new_long = operation.size, int(operation.size * long / short)
    if operation.max_size is not None and new_long > operation.max_size:
        new_short, new_long = int(operation.max_size * new_short / new_long), operation.max_size
    return (new_long, new_short) if size[0] > size[1] else (new_short, new_long)


def crop_box(operation: Crop, size: Size) -> tuple[int, int, int, int]:
    """Pixels (top, left, height, width) of a crop, inside the image and at least one pixel large."""
    height = min(max(math.floor(operation.height * size[0] + 0.5), 1), size[0])
    width = min(max(math.floor(operation.width * size[1] + 0.5), 1), size[1])
    top = min(max(math.floor(operation.top * size[0] + 0.5), 0), size[0] - height)
    left = min(max(math.floor(operation.left * size[1] + 0.5), 0), size[1] - width)
    return top, left, height, width


def padded_to_size(operation: PadToSize, size: Size) -> tuple[int, int, int, int]:
    """Padding (left, top, right, bottom) of ``PadToSize``."""
    down, across = max(operation.size[0] - size[0], 0), max(operation.size[1] - size[1], 0)
    return across, down, across, down


def _one(operation: Operation, size: Size | None) -> Size | None:
    match operation:
        case CenterCrop() | RandomResizedCrop() | RandomCrop():
            return operation.size
        case Resize():
            if isinstance(operation.size, int):
                return resized(size, operation) if size else None
            return operation.size
        case RandomApply():
            return size if size and size_after(operation.operations, size) == size else None
        case Rotate(expand=True) | RandomRotation(expand=True):
            return None
    if size is None:
        return None
    match operation:
        case Crop():
            return crop_box(operation, size)[2:]
        case Pad(padding=(left, top, right, bottom)):
            return size[0] + top + bottom, size[1] + left + right
        case PadToSize():
            left, top, right, bottom = padded_to_size(operation, size)
            return size[0] + top + bottom, size[1] + left + right
    return size


def size_after(operations: Sequence[Operation], size: Size | None = None) -> Size | None:
    """The (height, width) after all operations.

    Args:
        size: before them; None: unknown.

    Returns:
        None when it depends on the image's unknown size or on a random angle. An Unknown operation is taken to keep the size.
    """
    for operation in operations:
        if not isinstance(operation, Unknown):
            size = _one(operation, size)
    return size


def center_crop(operation: CenterCrop, size: Size) -> tuple[tuple[int, int, int, int], int, int]:
    """How torchvision crops the center: a smaller image is first padded with black, and halves are rounded to even.

    Returns:
        Padding (left, top, right, bottom), then top and left of the crop in the padded image.
    """
    down, across = max(operation.size[0] - size[0], 0), max(operation.size[1] - size[1], 0)
    padding = (across // 2, down // 2, (across + 1) // 2, (down + 1) // 2)
    top = round((size[0] + down - operation.size[0]) / 2)
    left = round((size[1] + across - operation.size[1]) / 2)
    return padding, top, left
