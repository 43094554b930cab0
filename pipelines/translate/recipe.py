"""The user's transforms as a list of plain operations, from which the translations are made.

The settings of torchvision's transform objects, v1 and v2, are read by class name; torchvision
itself is never imported.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.image_operations import (
    Erase,
    ImageOperation,
    RandomApply,
    RandomErasing,
    RandomOperation,
    UnknownOperation,
    size_after,
)

# (height, width) that shares are drawn for when there is no image: about the mean of ImageNet's
# files
_NOMINAL_SIZE = (400, 500)

_OUR_CHANNELS = 3  # every loader hands over RGB
# PIL.Image.Resampling, which old code gives in the place of torchvision's own words.
_PILLOW_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_NO_CHANGE = {"Identity", "RGB", "ToPureTensor"}  # on an RGB image
_FLIPS = (of.RandomHorizontalFlip, of.RandomVerticalFlip)
_MAX_NAME_LENGTH = 80  # characters of a transform's own words in a message


def _word(interpolation: Any) -> str:
    word = (
        _PILLOW_NUMBERS.get(interpolation)
        if isinstance(interpolation, int)
        else getattr(interpolation, "value", interpolation)
    )
    return "nearest" if word == "nearest-exact" else str(word)


def _floats(values: Any) -> tuple[float, ...]:
    return (
        tuple(float(value) for value in values)
        if isinstance(values, Iterable)
        else (float(values),)
    )


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
    left, top, right, bottom = (
        padding * 4 if len(padding) == 1 else padding * 2 if len(padding) == 2 else padding
    )
    return left, top, right, bottom


def _range(values: Any) -> of.Range | None:
    return None if values is None else (float(values[0]), float(values[1]))


def _resize(transform: Any, _: bool) -> ImageOperation:
    size = transform.size
    if size is None:
        return UnknownOperation("Resize", "it gives only the longest side (size=None)")
    shorter = size if isinstance(size, int) else size[0] if len(size) == 1 else None
    antialias = getattr(transform, "antialias", True)
    return of.Resize(
        _size(size) if shorter is None else int(shorter),
        _word(transform.interpolation),
        transform.max_size,
        bool(antialias),
    )


def _grayscale(transform: Any, _: bool) -> ImageOperation:
    if transform.num_output_channels != _OUR_CHANNELS:
        return UnknownOperation(
            "Grayscale(1)", f"it outputs one channel, but every loader outputs {_OUR_CHANNELS}"
        )
    return of.Grayscale()


def _affine(transform: Any, _: bool) -> ImageOperation:
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


def _jitter(t: Any, _: bool) -> ImageOperation:
    return of.ColorJitter(
        _range(t.brightness), _range(t.contrast), _range(t.saturation), _range(t.hue)
    )


def _resized_crop(t: Any, _: bool) -> ImageOperation:
    scale, ratio = _floats(t.scale), _floats(t.ratio)
    antialias = bool(getattr(t, "antialias", True))
    return of.RandomResizedCrop(
        _size(t.size), (scale[0], scale[1]), (ratio[0], ratio[1]), _word(t.interpolation), antialias
    )


def _crop(t: Any, _: bool) -> ImageOperation:
    padding = None if not t.padding else _padding(t.padding)
    if padding is not None and ".v2" in type(t).__module__:  # v2 keeps (left, right, top, bottom)
        padding = padding[0], padding[2], padding[1], padding[3]
    return of.RandomCrop(_size(t.size), padding, bool(t.pad_if_needed), _fill(t), t.padding_mode)


def _rotation(t: Any, _: bool) -> ImageOperation:
    degrees = _floats(t.degrees)
    return of.RandomRotation(
        (degrees[0], degrees[1]), _word(t.interpolation), bool(t.expand), _range(t.center), _fill(t)
    )


def _blur(t: Any, _: bool) -> ImageOperation:
    sigma, kernel = _floats(t.sigma), _size(t.kernel_size)
    return of.GaussianBlur(kernel, (sigma[0], sigma[-1]))


def _erasing(t: Any, normalised: bool) -> ImageOperation:
    scale, ratio = _floats(t.scale), _floats(t.ratio)
    value = None if t.value is None or t.value == "random" else _floats(t.value)
    return of.RandomErasing(
        float(t.p), (scale[0], scale[1]), (ratio[0], ratio[1]), value, normalised
    )


_READERS: dict[str, Callable[[Any, bool], ImageOperation]] = {
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
    "RandAugment": lambda t, _: of.RandAugment(
        t.num_ops, t.magnitude, t.num_magnitude_bins, _word(t.interpolation), _fill(t)
    ),
    "TrivialAugmentWide": lambda t, _: of.TrivialAugmentWide(
        t.num_magnitude_bins, _word(t.interpolation), _fill(t)
    ),
    "RandomErasing": _erasing,
}


def _described(transform: Any) -> str:
    """Name a transform for the user: its class, or the name and line of a function."""
    code = getattr(transform, "__code__", None)
    if code is not None:
        return f"{transform.__qualname__} (line {code.co_firstlineno})"[:_MAX_NAME_LENGTH]
    return type(transform).__name__


class _TransformReader:
    """Fills the list ``operations``, and tracks the value range of the tensor.

    Attributes:
        values: what the pixels are by now: ``image`` (PIL), ``uint8`` (a tensor, 0 to 255),
            ``unit`` (floats 0 to 1) or ``bytes`` (floats 0 to 255).
    """

    def __init__(self, values: str = "image") -> None:
        self.operations: list[ImageOperation] = []
        self.values = values
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None

    def add(self, transform: Any) -> None:
        """Read one transform, or all inside it."""
        kind, module = type(transform).__name__, type(transform).__module__
        if isinstance(transform, (list, tuple)) or (
            kind in ("Sequential", "ModuleList") and module.startswith("torch.nn.")
        ):
            for inner in transform:
                self.add(inner)
        elif kind == "Identity" and module.startswith("torch.nn."):
            pass
        elif not module.startswith("torchvision.transforms."):
            why = (
                "a function"
                if hasattr(transform, "__code__")
                else "a class that is not torchvision's own"
            )
            self.operations.append(
                UnknownOperation(
                    _described(transform), f"{why} has no counterpart in other libraries"
                )
            )
        else:
            self._torchvision(kind, transform)

    def normalisation(self) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
        """Return (mean, std) in units of 0 to 1."""
        if self.mean is None and self.values in ("uint8", "bytes"):
            return (0.0,), (1 / 255,)
        return self.mean, self.std

    def _torchvision(self, kind: str, transform: Any) -> None:
        if kind == "Compose":
            for inner in transform.transforms:
                self.add(inner)
        elif kind in _NO_CHANGE:
            pass
        elif kind == "ImageClassification":
            self._preset(transform)
        elif kind == "Lambda":
            self.operations.append(
                UnknownOperation(
                    f"Lambda: {_described(transform.lambd)}",
                    "a function has no counterpart in other libraries",
                )
            )
        elif kind in (
            "ToTensor",
            "PILToTensor",
            "ToImage",
            "ToPILImage",
            "ToDtype",
            "ConvertImageDtype",
        ):
            self._convert(kind, transform)
        elif self.mean is not None and kind != "RandomErasing":
            self.operations.append(
                UnknownOperation(
                    kind, "it follows Normalize, where only RandomErasing is translated"
                )
            )
        elif kind == "Normalize":
            self._normalize(transform)
        elif kind == "RandomApply":
            self._apply_some(transform)
        elif kind in _READERS:
            self._append(_READERS[kind](transform, self.mean is not None))
        else:
            self.operations.append(
                UnknownOperation(kind, "this transform of torchvision is not translated")
            )

    def _append(self, operation: ImageOperation) -> None:
        fill = getattr(operation, "fill", ())
        if isinstance(operation, (of.Resize, of.RandomResizedCrop)) and self.values == "image":
            operation = replace(operation, antialias=True)  # Pillow's resize knows nothing else
        elif any(fill) and self.values == "unit":
            operation = replace(operation, fill=tuple(value * 255 for value in fill))  # type: ignore[call-arg]
        if (
            isinstance(operation, of.RandomErasing)
            and self.values in ("uint8", "bytes")
            and self.mean is None
        ):
            if operation.value is None:
                operation = UnknownOperation(
                    "RandomErasing", "it puts noise of 0 to 1 into a tensor of 0 to 255"
                )
            else:
                operation = replace(
                    operation, value=tuple(value / 255 for value in operation.value)
                )
        if not isinstance(operation, (of.RandomErasing, *_FLIPS)):
            self._no_erasing_before(operation)
        self.operations.append(operation)

    def _no_erasing_before(self, operation: ImageOperation) -> None:
        """Replace erasing that other operations follow.

        Every translation erases last of all, which is the same only if nothing but flips would come
        after it.
        """
        late = UnknownOperation(
            "RandomErasing",
            f"{operation.name} follows it, where only flips and Normalize are translated",
        )
        self.operations = [
            late if isinstance(earlier, of.RandomErasing) else earlier
            for earlier in self.operations
        ]

    def _convert(self, kind: str, transform: Any) -> None:
        if kind == "ToPILImage":
            self.values = "image"
        elif kind == "ToTensor":
            self.values = "unit"
        elif kind in ("PILToTensor", "ToImage"):
            self.values = "uint8" if self.values == "image" else self.values
        else:
            dtype = transform.dtype
            if isinstance(dtype, dict):  # v2: one for each kind of input
                named = {getattr(key, "__name__", key): value for key, value in dtype.items()}
                dtype = named.get("Image", named.get("others"))
            scale = getattr(transform, "scale", kind == "ConvertImageDtype")
            self._to_dtype(str(dtype), bool(scale))

    def _to_dtype(self, dtype: str, scale: bool) -> None:
        if self.mean is not None or dtype == "None":
            return
        if dtype.startswith(("torch.float", "torch.bfloat", "torch.double", "torch.half")):
            if self.values in ("uint8", "image"):
                self.values = "unit" if scale else "bytes"
        elif dtype == "torch.uint8" and (scale or self.values != "unit"):
            self.values = "uint8"
        else:
            self.operations.append(
                UnknownOperation(
                    f"conversion to {dtype}", "only float types and uint8 are translated"
                )
            )

    def _normalize(self, transform: Any) -> None:
        largest = 255.0 if self.values == "bytes" else 1.0
        self.mean = tuple(float(value) / largest for value in transform.mean)
        self.std = tuple(float(value) / largest for value in transform.std)

    def _preset(self, preset: Any) -> None:
        """Read what ``weights.transforms()`` of torchvision's models gives."""
        size = preset.resize_size
        shorter = size[0] if len(size) == 1 else None
        interpolation = str(getattr(preset.interpolation, "value", preset.interpolation))
        self._append(of.Resize(tuple(size) if shorter is None else shorter, interpolation))
        self._append(of.CenterCrop((preset.crop_size[0], preset.crop_size[-1])))
        self.values = "unit"
        self._normalize(preset)

    def _apply_some(self, transform: Any) -> None:
        inner = _TransformReader(self.values)
        for inside in transform.transforms:
            inner.add(inside)
        if inner.mean is not None or inner.values != self.values:
            self.operations.append(
                UnknownOperation("RandomApply", "it normalizes or converts only some of the images")
            )
        else:
            erasing = UnknownOperation("RandomErasing", "it is inside RandomApply: use its own p")
            operations = tuple(
                erasing if isinstance(operation, of.RandomErasing) else operation
                for operation in inner.operations
            )
            self._append(of.RandomApply(operations, float(transform.p)))


@dataclass(frozen=True)
class Recipe:
    """Operations in order, from a decoded RGB image to the tensor.

    Conversions of type (ToTensor, PILToTensor, ToImage, ToDtype, ConvertImageDtype) are not in the
    list: every translation ends in float32.

    Attributes:
        mean, std: of the final Normalize, in units of 0 to 1; None: the tensor stays at 0 to 1. A
            transform that ends in a tensor of 0 to 255 has a std of 1 / 255.
    """

    operations: Sequence[ImageOperation]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def unknown(self) -> list[UnknownOperation]:
        """The operations without a translation, including those inside RandomApply."""
        return [
            operation
            for operation in flatten_operations(self.operations)
            if isinstance(operation, UnknownOperation)
        ]

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations without a translation, each with the reason."""
        return tuple(f"{operation.what}: {operation.why}" for operation in self.unknown)

    @property
    def known(self) -> "Recipe":
        """The recipe without its unknown operations, including those inside RandomApply."""
        return Recipe(_known(self.operations), self.mean, self.std)

    @property
    def random(self) -> bool:
        """Whether two passes over one image can differ."""
        return any(isinstance(operation, RandomOperation) for operation in self.operations)

    @property
    def output_size(self) -> tuple[int, int] | None:
        """The (height, width) of every image's tensor; None: images differ."""
        return size_after(self.operations)

    @property
    def images(self) -> list[ImageOperation]:
        """The operations on uint8 images.

        All except the erasing, which torchvision does on the finished tensor.
        """
        return [
            operation
            for operation in self.operations
            if not isinstance(operation, (RandomErasing, Erase))
        ]

    @property
    def erasing(self) -> list[RandomErasing | Erase]:
        """The operations that erase."""
        return [
            operation
            for operation in self.operations
            if isinstance(operation, (RandomErasing, Erase))
        ]


@dataclass(frozen=True)
class Translation:
    """A recipe translated to one library.

    Attributes:
        apply: pickles, so that it can be sent to a spawned worker.
        missing: operations that are left out, each with the reason: ``RandAugment: DALI has no
            ...``.
        differs: operations that are done with the same distribution of parameters but other pixels
            than torchvision, each with the reason.
        does: the recipe without what is missing.
    """

    apply: Callable[..., Any]
    missing: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    does: Recipe = Recipe(())


def flatten_operations(operations: Sequence[ImageOperation]) -> Iterator[ImageOperation]:
    """Yield every operation; those inside RandomApply in its place."""
    for operation in operations:
        if isinstance(operation, RandomApply):
            yield from flatten_operations(operation.operations)
        else:
            yield operation


def _known(operations: Sequence[ImageOperation]) -> tuple[ImageOperation, ...]:
    kept = [operation for operation in operations if not isinstance(operation, UnknownOperation)]
    return tuple(
        RandomApply(_known(operation.operations), operation.p)
        if isinstance(operation, RandomApply)
        else operation
        for operation in kept
    )


def read_recipe(transform: Any) -> Recipe:
    """Read torchvision transforms without importing torchvision.

    Args:
        transform: a Compose of ``torchvision.transforms`` or its ``v2``, an ``nn.Sequential``, a
            list, or one transform. Equal transforms of v1 and v2 give equal recipes. What is not
            torchvision's own (lambdas, functions, classes of the user's) becomes
            ``UnknownOperation``.
    """
    reading = _TransformReader()
    reading.add(transform)
    return Recipe(tuple(reading.operations), *reading.normalisation())


def freeze_recipe(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe with every random parameter drawn once, to compare pixels.

    A random crop becomes a fixed share of each image, drawn for one of 500 x 400; an operation that
    happens with some probability happens.
    """
    dice = random.Random(seed)
    size = _NOMINAL_SIZE
    fixed: list[ImageOperation] = []
    for operation in recipe.operations:
        drawn = draw(operation, dice, size, always=True)
        fixed += drawn
        size = size_after(drawn, size) or size
    return Recipe(tuple(fixed), recipe.mean, recipe.std)
