"""One fixed operation on one uint8 array [h, w, 3], with OpenCV and albumentations' functions."""

import math
from collections.abc import Callable
from typing import Any

import albumentations.augmentations.pixel.functional as pixel
import cv2
import numpy as np
from numpy.typing import NDArray

from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.image_operations import ImageOperation

_Image = NDArray[np.uint8]
_Matrix = NDArray[np.float64]
_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
_ENLARGING = {
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
}
_WARPS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
# Pillow's ImageFilter.SMOOTH, which its Sharpness mixes with the image.
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=np.float32) / 13
_ADJUST: dict[str, Callable[[_Image, float], _Image]] = {
    "brightness": pixel.adjust_brightness_torchvision,
    "contrast": pixel.adjust_contrast_torchvision,
    "saturation": pixel.adjust_saturation_torchvision,
    "hue": pixel.adjust_hue_torchvision,
}


def perform_albumentations(image: _Image, operation: ImageOperation) -> _Image:
    """Apply one operation.

    Args:
        image: uint8 [h, w, 3], RGB.
        operation: not random, not unknown, not Erase.

    Returns:
        uint8 [h, w, 3], perhaps a view of ``image``.
    """
    return _CALLS[type(operation)](image, operation)


def _size(image: _Image) -> tuple[int, int]:
    return image.shape[0], image.shape[1]


def _resize(image: _Image, operation: of.Resize) -> _Image:
    size = _size(image)
    wanted = operation.result_size(size)
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


def _bordered(
    image: _Image, padding: tuple[int, int, int, int], fill: of.Fill, mode: str
) -> _Image:
    left, top, right, bottom = (max(value, 0) for value in padding)
    cut = [max(-value, 0) for value in padding]  # torchvision takes padding below zero as a crop
    image = image[cut[1] : image.shape[0] - cut[3], cut[0] : image.shape[1] - cut[2]]
    return cv2.copyMakeBorder(image, top, bottom, left, right, _BORDERS[mode], value=_fill(fill))  # type: ignore[return-value]


def _center(image: _Image, operation: of.CenterCrop) -> _Image:
    padding, top, left = operation.placement(_size(image))
    if any(padding):
        image = _bordered(image, padding, (0.0,), "constant")
    return image[top : top + operation.size[0], left : left + operation.size[1]]


def _crop(image: _Image, operation: of.Crop) -> _Image:
    top, left, height, width = operation.box(_size(image))
    return image[top : top + height, left : left + width]


def _pad(image: _Image, operation: of.Pad) -> _Image:
    return _bordered(image, operation.padding, operation.fill, operation.mode)


def _pad_to_size(image: _Image, operation: of.PadToSize) -> _Image:
    padding = operation.padding_for(_size(image))
    return _bordered(image, padding, operation.fill, operation.mode) if any(padding) else image


def _flip(image: _Image, operation: of.Flip) -> _Image:
    return cv2.flip(image, 1 if operation.horizontal else 0)  # type: ignore[return-value]


def _adjust(image: _Image, operation: of.Adjust) -> _Image:
    image = np.ascontiguousarray(image)
    if operation.kind != "sharpness":
        return _ADJUST[operation.kind](image, operation.factor)
    kernel = _SMOOTH * (1 - operation.factor)
    kernel[1, 1] += operation.factor
    sharp = cv2.filter2D(image, -1, kernel)
    # Pillow leaves the outermost pixels alone
    sharp[[0, -1]], sharp[:, [0, -1]] = image[[0, -1]], image[:, [0, -1]]
    return sharp  # type: ignore[return-value]


def _gray(image: _Image, operation: of.Grayscale) -> _Image:
    gray = pixel.to_gray_weighted_average(np.ascontiguousarray(image))
    return pixel.grayscale_to_multichannel(gray, 3)


def _blur(image: _Image, operation: of.Blur) -> _Image:
    sigma = operation.sigma
    return cv2.GaussianBlur(
        image, operation.kernel, sigma, sigmaY=sigma, borderType=cv2.BORDER_REFLECT_101
    )  # type: ignore[return-value]


def _affine(image: _Image, operation: of.Affine | of.Rotate) -> _Image:
    size = _size(image)
    affine = _as_affine(operation) if isinstance(operation, of.Rotate) else operation
    matrix = _source_matrix(affine, size)
    if isinstance(operation, of.Rotate) and operation.expand:
        matrix, size = _expanded(matrix, size)
    # OpenCV puts the middle of the first pixel at (0, 0)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    matrix = (np.linalg.inv(half) @ matrix @ half)[:2]
    flags = _WARPS.get(affine.interpolation, cv2.INTER_LINEAR) | cv2.WARP_INVERSE_MAP
    fill = _fill(affine.fill)
    return cv2.warpAffine(image, matrix, (size[1], size[0]), flags=flags, borderValue=fill)  # type: ignore[return-value]


def _as_affine(operation: of.Rotate) -> of.Affine:
    """Return a rotation as an affine transform.

    torchvision rotates counter-clockwise in ``rotate`` and clockwise in ``affine``.
    """
    return of.Affine(
        -operation.angle,
        interpolation=operation.interpolation,
        fill=operation.fill,
        center=operation.center,
    )


def _source_matrix(operation: of.Affine, size: of.Size) -> _Matrix:
    """Return where each pixel of the result comes from.

    torchvision's definition (functional.affine): turn, scale and shear about the center, then move
    by whole pixels.

    Args:
        operation: the transform.
        size: (height, width) of the image.

    Returns:
        float64 [3, 3], from (x, y) of the result to (x, y) of the image; the middle of the first
        pixel is at (0.5, 0.5).
    """
    height, width = size
    x, y = operation.center or (width / 2, height / 2)
    angle, along_x, along_y = (
        math.radians(degrees) for degrees in (operation.angle, *operation.shear)
    )
    turn = _linear([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    shear_y = _linear([[1, 0], [-math.tan(along_y), 1]])
    shear_x = _linear([[1, -math.tan(along_x)], [0, 1]])
    scale = _linear([[operation.scale, 0], [0, operation.scale]])
    move = _moved(round(operation.translate[0] * width), round(operation.translate[1] * height))
    matrix: _Matrix = move @ _moved(x, y) @ turn @ scale @ shear_y @ shear_x @ _moved(-x, -y)
    return np.linalg.inv(matrix).astype(np.float64)


def _expanded(matrix: _Matrix, size: of.Size) -> tuple[_Matrix, of.Size]:
    """Return a result large enough for the whole rotated image.

    As in Pillow's ``rotate(expand=True)``.
    """
    height, width = size
    corners = np.array(
        [[0, width, width, 0], [0, 0, height, height], [1, 1, 1, 1]], dtype=np.float64
    )
    x, y, _ = np.round(np.linalg.inv(matrix) @ corners, 9)
    columns = math.ceil(x.max()) - math.floor(x.min())
    rows = math.ceil(y.max()) - math.floor(y.min())
    return matrix @ _moved((width - columns) / 2, (height - rows) / 2), (rows, columns)


def _linear(rows: list[list[float]]) -> _Matrix:
    matrix = np.eye(3)
    matrix[:2, :2] = rows
    return matrix


def _moved(x: float, y: float) -> _Matrix:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=np.float64)


def _tone(image: _Image, operation: of.Tone) -> _Image:
    image = np.ascontiguousarray(image)
    match operation.kind:
        case "posterize":
            bits: Any = int(operation.magnitude)
            return pixel.posterize(image, bits) if bits < 8 else image
        case "solarize":
            return pixel.solarize(image, operation.magnitude / 255)
    # albumentations' "pil" modes are up to 4 (autocontrast) and 20 (equalize) gray levels away from
    # Pillow.
    change = _contrasted if operation.kind == "autocontrast" else _equalized
    return cv2.merge([change(channel) for channel in cv2.split(image)])


def _contrasted(channel: Any) -> Any:
    """Do as Pillow's ImageOps.autocontrast."""
    low, high = int(channel.min()), int(channel.max())
    if high <= low:
        return channel
    scale = 255.0 / (high - low)
    return cv2.LUT(
        channel, np.clip(np.trunc(np.arange(256) * scale - low * scale), 0, 255).astype(np.uint8)
    )


def _equalized(channel: Any) -> Any:
    """Do as Pillow's ImageOps.equalize."""
    counts = cv2.calcHist([channel], [0], None, [256], (0, 256)).ravel().astype(np.int64)
    used = counts[counts > 0]
    step = int(used[:-1].sum()) // 255
    if step == 0:
        return channel
    below = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return cv2.LUT(channel, np.minimum((step // 2 + below) // step, 255).astype(np.uint8))


_CALLS: dict[type[ImageOperation], Callable[[_Image, Any], _Image]] = {
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
