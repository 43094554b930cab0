"""One fixed operation on one uint8 array [h, w, 3], with OpenCV and albumentations' functions."""

from collections.abc import Callable
from typing import Any

import albumentations.augmentations.pixel.functional as pixel
import cv2
import numpy as np
from numpy.typing import NDArray

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.operations import Operation
from feedline.pipelines.translate.output_size import center_crop, crop_box, padded_to_size, resized
from feedline.pipelines.translate.warp import as_affine, expanded, source_matrix

Image = NDArray[np.uint8]

_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
_ENLARGING = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "lanczos": cv2.INTER_LANCZOS4}
_WARPS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
_ADJUST: dict[str, Callable[[Image, float], Image]] = {
    "brightness": pixel.adjust_brightness_torchvision,
    "contrast": pixel.adjust_contrast_torchvision,
    "saturation": pixel.adjust_saturation_torchvision,
    "hue": pixel.adjust_hue_torchvision,
}
# Pillow's ImageFilter.SMOOTH, which its Sharpness mixes with the image.
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=np.float32) / 13


def perform(image: Image, operation: Operation) -> Image:
    """Apply one operation.

    Args:
        image: uint8 [h, w, 3], RGB.
        operation: not random, not Unknown, not Erase.

    Returns:
        uint8 [h, w, 3], perhaps a view of ``image``.
    """
    return _CALLS[type(operation)](image, operation)


def _size(image: Image) -> tuple[int, int]:
    return image.shape[0], image.shape[1]


def _resize(image: Image, operation: of.Resize) -> Image:
    size = _size(image)
    wanted = resized(size, operation)
    if wanted == size:
        return image
    if operation.interpolation == "nearest":
        mode = cv2.INTER_NEAREST_EXACT
    elif operation.antialias and wanted[0] < size[0] and wanted[1] < size[1]:
        mode = cv2.INTER_AREA  # OpenCV's only one that looks at all pixels
    else:
        mode = _ENLARGING.get(operation.interpolation, cv2.INTER_LINEAR)
    return cv2.resize(np.ascontiguousarray(image), (wanted[1], wanted[0]), interpolation=mode)  # type: ignore[return-value]


def _fill(fill: of.Fill) -> tuple[float, ...]:
    return fill * 3 if len(fill) == 1 else fill


def _bordered(image: Image, padding: tuple[int, int, int, int], fill: of.Fill, mode: str) -> Image:
    left, top, right, bottom = (max(value, 0) for value in padding)
    cut = [max(-value, 0) for value in padding]  # torchvision takes padding below zero as a crop
    image = image[cut[1] : image.shape[0] - cut[3], cut[0] : image.shape[1] - cut[2]]
    return cv2.copyMakeBorder(image, top, bottom, left, right, _BORDERS[mode], value=_fill(fill))  # type: ignore[return-value]


def _center(image: Image, operation: of.CenterCrop) -> Image:
    padding, top, left = center_crop(operation, _size(image))
    if any(padding):
        image = _bordered(image, padding, (0.0,), "constant")
    return image[top : top + operation.size[0], left : left + operation.size[1]]


def _crop(image: Image, operation: of.Crop) -> Image:
    top, left, height, width = crop_box(operation, _size(image))
    return image[top : top + height, left : left + width]


def _pad(image: Image, operation: of.Pad) -> Image:
    return _bordered(image, operation.padding, operation.fill, operation.mode)


def _pad_to_size(image: Image, operation: of.PadToSize) -> Image:
    padding = padded_to_size(operation, _size(image))
    return _bordered(image, padding, operation.fill, operation.mode) if any(padding) else image


def _flip(image: Image, operation: of.Flip) -> Image:
    return cv2.flip(image, 1 if operation.horizontal else 0)  # type: ignore[return-value]


def _adjust(image: Image, operation: of.Adjust) -> Image:
    image = np.ascontiguousarray(image)
    if operation.kind != "sharpness":
        return _ADJUST[operation.kind](image, operation.factor)
    kernel = _SMOOTH * (1 - operation.factor)
    kernel[1, 1] += operation.factor
    sharp = cv2.filter2D(image, -1, kernel)
    sharp[[0, -1]], sharp[:, [0, -1]] = image[[0, -1]], image[:, [0, -1]]  # Pillow leaves the outermost pixels alone
    return sharp  # type: ignore[return-value]


def _gray(image: Image, operation: of.Grayscale) -> Image:
    gray = pixel.to_gray_weighted_average(np.ascontiguousarray(image))
    return pixel.grayscale_to_multichannel(gray, 3)


def _blur(image: Image, operation: of.Blur) -> Image:
    sigma = operation.sigma
    return cv2.GaussianBlur(image, operation.kernel, sigma, sigmaY=sigma, borderType=cv2.BORDER_REFLECT_101)  # type: ignore[return-value]


def _affine(image: Image, operation: of.Affine | of.Rotate) -> Image:
    size = _size(image)
    affine = as_affine(operation) if isinstance(operation, of.Rotate) else operation
    matrix = source_matrix(affine, size)
    if isinstance(operation, of.Rotate) and operation.expand:
        matrix, size = expanded(matrix, size)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # OpenCV puts the middle of the first pixel at (0, 0)
    matrix = (np.linalg.inv(half) @ matrix @ half)[:2]
    flags = _WARPS.get(affine.interpolation, cv2.INTER_LINEAR) | cv2.WARP_INVERSE_MAP
    fill = _fill(affine.fill)
    return cv2.warpAffine(image, matrix, (size[1], size[0]), flags=flags, borderValue=fill)  # type: ignore[return-value]


def _tone(image: Image, operation: of.Tone) -> Image:
    image = np.ascontiguousarray(image)
    match operation.kind:
        case "posterize":
            bits: Any = int(operation.magnitude)
            return pixel.posterize(image, bits) if bits < 8 else image
        case "solarize":
            return pixel.solarize(image, operation.magnitude / 255)
    # albumentations' "pil" modes are up to 4 (autocontrast) and 20 (equalize) gray levels away from Pillow.
    change = _contrasted if operation.kind == "autocontrast" else _equalized
    return cv2.merge([change(channel) for channel in cv2.split(image)])


def _contrasted(channel: Any) -> Any:
    """As Pillow's ImageOps.autocontrast."""
    low, high = int(channel.min()), int(channel.max())
    if high <= low:
        return channel
    scale = 255.0 / (high - low)
    return cv2.LUT(channel, np.clip(np.trunc(np.arange(256) * scale - low * scale), 0, 255).astype(np.uint8))


def _equalized(channel: Any) -> Any:
    """As Pillow's ImageOps.equalize."""
    counts = cv2.calcHist([channel], [0], None, [256], (0, 256)).ravel().astype(np.int64)
    used = counts[counts > 0]
    step = int(used[:-1].sum()) // 255
    if step == 0:
        return channel
    below = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return cv2.LUT(channel, np.minimum((step // 2 + below) // step, 255).astype(np.uint8))


_CALLS: dict[type[Operation], Callable[[Image, Any], Image]] = {
    of.Resize: _resize,
    of.CenterCrop: _center,
    of.Crop: _crop,
    of.Pad: _pad,
    of.PadToSize: _pad_to_size,
    of.Flip: _flip,
    of.Adjust: _adjust,
    of.Grayscale: _gray,
    of.Blur: _blur,
    of.Affine: _affine,
    of.Rotate: _affine,
    of.Tone: _tone,
}
