"""Reads the settings of torchvision's transform objects, v1 and v2, by class name; torchvision itself is never imported."""

from collections.abc import Callable, Iterable
from typing import Any

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.operations import Operation, Unknown

_OUR_CHANNELS = 3  # every loader hands over RGB
# PIL.Image.Resampling, which old code gives in the place of torchvision's own words.
_PILLOW_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
NOTHING = {"Identity", "RGB", "ToPureTensor"}  # on an RGB image


def _word(interpolation: Any) -> str:
    word = _PILLOW_NUMBERS.get(interpolation) if isinstance(interpolation, int) else getattr(interpolation, "value", interpolation)
    return "nearest" if word == "nearest-exact" else str(word)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values) if isinstance(values, Iterable) else (float(values),)


def _fill(transform: Any) -> of.Fill:
    fill = transform.fill
    if isinstance(fill, dict):  # v2: one for each kind of input
        named = {getattr(kind, "__name__", kind): value for kind, value in fill.items()}
        fill = named.get("Image", named.get("others", 0))
    return _floats(0 if fill is None else fill)


def _size(size: Any) -> of.Size:
    height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return int(height), int(width)


def _padding(padding: Any) -> tuple[int, int, int, int]:
    if isinstance(padding, int):
        return (padding,) * 4
    padding = [int(value) for value in padding]
    left, top, right, bottom = padding * 4 if len(padding) == 1 else padding * 2 if len(padding) == 2 else padding
    return left, top, right, bottom


def _range(values: Any) -> of.Range | None:
    return None if values is None else (float(values[0]), float(values[1]))


def _resize(transform: Any, _: bool) -> Operation:
    size = transform.size
    if size is None:
        return Unknown("Resize", "it gives only the longest side (size=None)")
    one = size if isinstance(size, int) else size[0] if len(size) == 1 else None
    antialias = getattr(transform, "antialias", True)
    return of.Resize(_size(size) if one is None else int(one), _word(transform.interpolation), transform.max_size, bool(antialias))


def _grayscale(transform: Any, _: bool) -> Operation:
    if transform.num_output_channels != _OUR_CHANNELS:
        return Unknown("Grayscale(1)", f"it outputs one channel, but every loader outputs {_OUR_CHANNELS}")
    return of.Grayscale()


def _affine(transform: Any, _: bool) -> Operation:
    degrees, shear = _floats(transform.degrees), None
    if transform.shear is not None:
        shear = (*_floats(transform.shear), 0.0, 0.0)[:4]
    center = _range(transform.center)
    return of.RandomAffine(
        (degrees[0], degrees[1]),
        _range(transform.translate),
        _range(transform.scale),
        shear,  # type: ignore[arg-type]
        _word(transform.interpolation),
        _fill(transform),
        center,
    )


def _jitter(t: Any, _: bool) -> Operation:
    return of.ColorJitter(_range(t.brightness), _range(t.contrast), _range(t.saturation), _range(t.hue))


def _resized_crop(t: Any, _: bool) -> Operation:
    scale, ratio = _floats(t.scale), _floats(t.ratio)
    antialias = bool(getattr(t, "antialias", True))
    return of.RandomResizedCrop(_size(t.size), (scale[0], scale[1]), (ratio[0], ratio[1]), _word(t.interpolation), antialias)


def _crop(t: Any, _: bool) -> Operation:
    padding = None if not t.padding else _padding(t.padding)
    if padding is not None and ".v2" in type(t).__module__:  # v2 keeps (left, right, top, bottom)
        padding = padding[0], padding[2], padding[1], padding[3]
    return of.RandomCrop(_size(t.size), padding, bool(t.pad_if_needed), _fill(t), t.padding_mode)


def _rotation(t: Any, _: bool) -> Operation:
    degrees = _floats(t.degrees)
    return of.RandomRotation((degrees[0], degrees[1]), _word(t.interpolation), bool(t.expand), _range(t.center), _fill(t))


def _blur(t: Any, _: bool) -> Operation:
    sigma, kernel = _floats(t.sigma), _size(t.kernel_size)
    return of.GaussianBlur(kernel, (sigma[0], sigma[-1]))


def _erasing(t: Any, normalised: bool) -> Operation:
    scale, ratio = _floats(t.scale), _floats(t.ratio)
    value = None if t.value is None or t.value == "random" else _floats(t.value)
    return of.RandomErasing(float(t.p), (scale[0], scale[1]), (ratio[0], ratio[1]), value, normalised)


READERS: dict[str, Callable[[Any, bool], Operation]] = {
    "Resize": _resize,
    "CenterCrop": lambda t, _: of.CenterCrop(_size(t.size)),
    "RandomResizedCrop": _resized_crop,
    "RandomCrop": _crop,
    "Pad": lambda t, _: of.Pad(_padding(t.padding), _fill(t), t.padding_mode),
    "RandomHorizontalFlip": lambda t, _: of.RandomHorizontalFlip(float(t.p)),
    "RandomVerticalFlip": lambda t, _: of.RandomVerticalFlip(float(t.p)),
    "ColorJitter": _jitter,
    "Grayscale": _grayscale,
    "RandomGrayscale": lambda t, _: of.RandomGrayscale(float(t.p)),
    "GaussianBlur": _blur,
    "RandomAffine": _affine,
    "RandomRotation": _rotation,
    "RandAugment": lambda t, _: of.RandAugment(t.num_ops, t.magnitude, t.num_magnitude_bins, _word(t.interpolation), _fill(t)),
    "TrivialAugmentWide": lambda t, _: of.TrivialAugmentWide(t.num_magnitude_bins, _word(t.interpolation), _fill(t)),
    "RandomErasing": _erasing,
}
