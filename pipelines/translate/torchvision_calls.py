"""One fixed operation on one image, with functions common to torchvision's v1 and v2 functional modules."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.operations import Operation, Size
from feedline.pipelines.translate.output_size import crop_box, padded_to_size, resized

# Modes that torchvision has for PIL images only, and the nearest one it has for tensors.
PILLOW_ONLY = {"lanczos": "bicubic", "box": "bilinear", "hamming": "bilinear"}


def perform(functional: ModuleType, image: Any, operation: Operation, size: Size) -> Any:
    """Apply one operation.

    Args:
        functional: ``torchvision.transforms.functional`` or ``torchvision.transforms.v2.functional``.
        image: a PIL image, or a uint8 tensor [3, h, w] or [n, 3, h, w].
        operation: not random, not Unknown, not Erase.
        size: (height, width) of the image.
    """
    return _CALLS[type(operation)](functional, image, operation, size)


def _mode(functional: ModuleType, word: str, image: Any) -> Any:
    if not hasattr(image, "shape"):
        return functional.InterpolationMode(word)
    word = PILLOW_ONLY.get(word, word)
    return functional.InterpolationMode("nearest-exact" if word == "nearest" else word)


def _warp_mode(functional: ModuleType, word: str, image: Any) -> Any:
    if hasattr(image, "shape") and word not in ("nearest", "bilinear"):
        word = "bilinear"
    return functional.InterpolationMode(word)


def _resize(f: ModuleType, image: Any, operation: of.Resize, size: Size) -> Any:
    wanted = resized(size, operation)
    if wanted == size:
        return image
    return f.resize(image, list(wanted), _mode(f, operation.interpolation, image), antialias=operation.antialias)


def _affine(f: ModuleType, image: Any, operation: of.Affine, size: Size) -> Any:
    return f.affine(
        image,
        angle=operation.angle,
        translate=[round(operation.translate[0] * size[1]), round(operation.translate[1] * size[0])],
        scale=operation.scale,
        shear=list(operation.shear),
        interpolation=_warp_mode(f, operation.interpolation, image),
        fill=list(operation.fill),
        center=None if operation.center is None else list(operation.center),
    )


def _rotate(f: ModuleType, image: Any, operation: of.Rotate, size: Size) -> Any:
    mode = _warp_mode(f, operation.interpolation, image)
    center = None if operation.center is None else list(operation.center)
    return f.rotate(image, operation.angle, mode, operation.expand, center, list(operation.fill))


def _tone(f: ModuleType, image: Any, operation: of.Tone, size: Size) -> Any:
    match operation.kind:
        case "posterize":
            return f.posterize(image, int(operation.magnitude))
        case "solarize":
            return f.solarize(image, operation.magnitude)
    return getattr(f, operation.kind)(image)


def _pad(f: ModuleType, image: Any, operation: of.Pad | of.PadToSize, size: Size) -> Any:
    padding = operation.padding if isinstance(operation, of.Pad) else padded_to_size(operation, size)
    fill = operation.fill[0] if len(operation.fill) == 1 else list(operation.fill)
    return f.pad(image, list(padding), fill, operation.mode) if any(padding) else image


def _grayscale(f: ModuleType, image: Any, operation: of.Grayscale, size: Size) -> Any:
    return f.rgb_to_grayscale(image, 3) if hasattr(image, "shape") else f.to_grayscale(image, 3)


_CALLS: dict[type[Operation], Callable[[ModuleType, Any, Any, Size], Any]] = {
    of.Resize: _resize,
    of.CenterCrop: lambda f, image, operation, size: f.center_crop(image, list(operation.size)),
    of.Crop: lambda f, image, operation, size: f.crop(image, *crop_box(operation, size)),
    of.Pad: _pad,
    of.PadToSize: _pad,
    of.Flip: lambda f, image, operation, size: f.hflip(image) if operation.horizontal else f.vflip(image),
    of.Adjust: lambda f, image, operation, size: getattr(f, f"adjust_{operation.kind}")(image, operation.factor),
    of.Grayscale: _grayscale,
    of.Blur: lambda f, image, operation, size: f.gaussian_blur(image, list(operation.kernel), [operation.sigma, operation.sigma]),
    of.Affine: _affine,
    of.Rotate: _rotate,
    of.Tone: _tone,
}
