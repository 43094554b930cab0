"""Bytes and pixels of the result of a call. Reads no values and copies nothing."""

from typing import Any


def _pixels(image: Any) -> int:
    """Width times height of a PIL image, a tensor [..., H, W] or an array [H, W] or [H, W, C].

    Of a tuple or list the first part counts, of a dict its "image".

    Raises:
        AttributeError: it is none of these.
    """
    if isinstance(image, dict):
        image = image.get("image")
    elif isinstance(image, (tuple, list)) and image:
        image = image[0]
    size = getattr(image, "size", None)
    if isinstance(size, tuple):
        return size[0] * size[1]
    shape = image.shape
    if len(shape) < 2:
        return 0
    height, width = shape[-2:] if callable(size) else shape[:2]  # a tensor's size is a method, an array's a number
    return int(height) * int(width)


def read(result: Any) -> tuple[int, int]:
    """For READ: bytes of an array or a tensor; 0 for data still on the disk (memmap, an archive's index)."""
    return 0 if hasattr(result, "_mmap") else int(getattr(result, "nbytes", 0)), 0


def decoded(result: Any) -> tuple[int, int]:
    """For DECODE: bytes and pixels of an array or a tensor."""
    return result.nbytes, _pixels(result)


def augmented(result: Any) -> tuple[int, int]:
    """For AUGMENT: the pixels of the result."""
    return 0, _pixels(result)
