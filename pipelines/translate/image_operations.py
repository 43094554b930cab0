"""Every operation of a recipe, with the names and settings of torchvision.

Sizes are (height, width) and padding is (left, top, right, bottom), in pixels, as in torchvision;
fills are 0 to 255; ``interpolation`` is torchvision's word: nearest, bilinear, bicubic, lanczos,
box, hamming. A random operation is never applied itself: draw.py turns it into fixed ones. A fixed
position is a share of the image's size, so that it fits images of every size.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Size = tuple[int, int]
Range = tuple[float, float]
Fill = tuple[float, ...]


@dataclass(frozen=True)
class ImageOperation:
    """One transform with its settings."""

    @property
    def name(self) -> str:
        """The name for the user."""
        return type(self).__name__


@dataclass(frozen=True)
class RandomOperation(ImageOperation):
    """An operation whose parameters are drawn for every image."""


@dataclass(frozen=True)
class UnknownOperation(ImageOperation):
    """A transform without a translation.

    A lambda, a class of the user's, an option that only torchvision has.
    """

    what: str
    why: str

    @property
    def name(self) -> str:
        """The name for the user."""
        return self.what


def distinct_names(operations: Sequence[ImageOperation]) -> list[str]:
    """Return the operations' names, the repeated ones numbered: the second is ``Resize 2``."""
    seen: Counter[str] = Counter()
    names = []
    for operation in operations:
        seen[operation.name] += 1
        times = seen[operation.name]
        names.append(operation.name if times == 1 else f"{operation.name} {times}")
    return names


@dataclass(frozen=True)
class Resize(ImageOperation):
    """Resize an image.

    Attributes:
        size: (height, width), or one number: the shorter side, with the other in proportion.
        max_size: the longer side is at most this many pixels.
    """

    size: Size | int
    interpolation: str = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def result_size(self, size: Size) -> Size:
        """Return the size that torchvision makes of ``size``: the longer side is truncated."""
        if not isinstance(self.size, int):
            return self.size
        short, long = min(size), max(size)
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        return (new_long, new_short) if size[0] > size[1] else (new_short, new_long)


@dataclass(frozen=True)
class CenterCrop(ImageOperation):
    """Cut out the center."""

    size: Size

    def placement(self, size: Size) -> tuple[tuple[int, int, int, int], int, int]:
        """Place the crop as torchvision does.

        A smaller image is first padded with black, and halves are rounded to even.

        Returns:
            Padding (left, top, right, bottom), then top and left of the crop in the padded image.
        """
        down, across = max(self.size[0] - size[0], 0), max(self.size[1] - size[1], 0)
        padding = (across // 2, down // 2, (across + 1) // 2, (down + 1) // 2)
        top = round((size[0] + down - self.size[0]) / 2)
        left = round((size[1] + across - self.size[1]) / 2)
        return padding, top, left


@dataclass(frozen=True)
class Crop(ImageOperation):
    """Cut out a rectangle.

    Attributes:
        top, left, height, width: shares of the image's height and width; each is rounded to the
            nearest pixel.
    """

    top: float
    left: float
    height: float
    width: float

    def box(self, size: Size) -> tuple[int, int, int, int]:
        """Return pixels (top, left, height, width), inside the image and at least one large."""
        height = min(max(math.floor(self.height * size[0] + 0.5), 1), size[0])
        width = min(max(math.floor(self.width * size[1] + 0.5), 1), size[1])
        top = min(max(math.floor(self.top * size[0] + 0.5), 0), size[0] - height)
        left = min(max(math.floor(self.left * size[1] + 0.5), 0), size[1] - width)
        return top, left, height, width


@dataclass(frozen=True)
class Pad(ImageOperation):
    """Add a border.

    Attributes:
        mode: constant, edge, reflect or symmetric.
    """

    padding: tuple[int, int, int, int]
    fill: Fill = (0.0,)
    mode: str = "constant"


@dataclass(frozen=True)
class PadToSize(ImageOperation):
    """Pad both sides of an image smaller than ``size`` by the missing amount.

    As RandomCrop(pad_if_needed=True) does.
    """

    size: Size
    fill: Fill = (0.0,)
    mode: str = "constant"

    def padding_for(self, size: Size) -> tuple[int, int, int, int]:
        """Return the padding (left, top, right, bottom) of an image of this size."""
        down, across = max(self.size[0] - size[0], 0), max(self.size[1] - size[1], 0)
        return across, down, across, down


@dataclass(frozen=True)
class Flip(ImageOperation):
    """Mirror an image."""

    horizontal: bool


@dataclass(frozen=True)
class Adjust(ImageOperation):
    """Change colors by a factor.

    Attributes:
        kind: brightness, contrast, saturation, sharpness (factor 1: unchanged) or hue (-0.5 to 0.5,
            0: unchanged).
    """

    kind: str
    factor: float


@dataclass(frozen=True)
class Grayscale(ImageOperation):
    """Turn to gray, in three equal channels."""


@dataclass(frozen=True)
class Blur(ImageOperation):
    """Blur an image.

    Attributes:
        kernel: (width, height), odd.
        sigma: pixels, of both directions.
    """

    kernel: Size
    sigma: float


@dataclass(frozen=True)
class Affine(ImageOperation):
    """Transform as torchvision's functional ``affine``.

    Attributes:
        angle, shear: degrees, clockwise.
        translate: (x, y), shares of the width and height; rounded to pixels.
        center: (x, y) in pixels; None: the middle.
    """

    angle: float = 0.0
    translate: Range = (0.0, 0.0)
    scale: float = 1.0
    shear: Range = (0.0, 0.0)
    interpolation: str = "nearest"
    fill: Fill = (0.0,)
    center: Range | None = None


@dataclass(frozen=True)
class Rotate(ImageOperation):
    """Rotate an image.

    Attributes:
        angle: degrees, counter-clockwise, as in torchvision.
    """

    angle: float
    interpolation: str = "nearest"
    expand: bool = False
    center: Range | None = None
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class Tone(ImageOperation):
    """Change gray levels as in RandAugment and TrivialAugmentWide.

    Attributes:
        kind: posterize (magnitude: bits kept), solarize (magnitude: threshold), autocontrast,
            equalize.
    """

    kind: str
    magnitude: float = 0.0


@dataclass(frozen=True)
class Erase(ImageOperation):
    """Fill a rectangle.

    Attributes:
        top, left, height, width: shares of the image's.
        value: one a channel (or one for all), in the tensor's units; None: normally distributed
            noise.
        normalised: whether it follows Normalize, or comes before it.
    """

    top: float
    left: float
    height: float
    width: float
    value: Fill | None = (0.0,)
    normalised: bool = True


@dataclass(frozen=True)
class RandomHorizontalFlip(RandomOperation):
    """Mirror left and right with a probability."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(RandomOperation):
    """Mirror top and bottom with a probability."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomGrayscale(RandomOperation):
    """Turn to gray with a probability."""

    p: float = 0.1


@dataclass(frozen=True)
class RandomResizedCrop(RandomOperation):
    """Cut out a random rectangle, and resize it.

    Attributes:
        scale: of the crop's area, as a share of the image's.
        ratio: of its width to its height.
    """

    size: Size
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class RandomCrop(RandomOperation):
    """Cut out a rectangle at a random position.

    Attributes:
        padding: before the crop; None: none.
    """

    size: Size
    padding: tuple[int, int, int, int] | None = None
    pad_if_needed: bool = False
    fill: Fill = (0.0,)
    mode: str = "constant"


@dataclass(frozen=True)
class ColorJitter(RandomOperation):
    """Adjust colors in random order, as in torchvision.

    Each value is the range of a factor (hue: of a shift), or None for no change.
    """

    brightness: Range | None = None
    contrast: Range | None = None
    saturation: Range | None = None
    hue: Range | None = None


@dataclass(frozen=True)
class GaussianBlur(RandomOperation):
    """Blur an image by a random amount.

    Attributes:
        kernel: (width, height), odd.
        sigma: range, pixels.
    """

    kernel: Size
    sigma: Range = (0.1, 2.0)


@dataclass(frozen=True)
class RandomAffine(RandomOperation):
    """Draw an affine transform.

    Attributes:
        degrees: range.
        translate: largest shares (x, y).
        shear: (x from, x to, y from, y to), degrees.
    """

    degrees: Range
    translate: Range | None = None
    scale: Range | None = None
    shear: tuple[float, float, float, float] | None = None
    interpolation: str = "nearest"
    fill: Fill = (0.0,)
    center: Range | None = None


@dataclass(frozen=True)
class RandomRotation(RandomOperation):
    """Rotate by a random angle."""

    degrees: Range
    interpolation: str = "nearest"
    expand: bool = False
    center: Range | None = None
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class RandAugment(RandomOperation):
    """Do some of fourteen operations, all at one magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class TrivialAugmentWide(RandomOperation):
    """Do one of fourteen operations at any magnitude."""

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class RandomErasing(RandomOperation):
    """Erase a random rectangle.

    Attributes: as those of Erase.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: Fill | None = (0.0,)
    normalised: bool = True


@dataclass(frozen=True)
class RandomApply(RandomOperation):
    """Do all of ``operations``, or none."""

    operations: tuple[ImageOperation, ...]
    p: float = 0.5


def _size_after_one(operation: ImageOperation, size: Size | None) -> Size | None:
    match operation:
        case CenterCrop() | RandomResizedCrop() | RandomCrop():
            return operation.size
        case Resize():
            if isinstance(operation.size, int):
                return operation.result_size(size) if size else None
            return operation.size
        case RandomApply():
            return size if size and size_after(operation.operations, size) == size else None
        case Rotate(expand=True) | RandomRotation(expand=True):
            return None
    if size is None:
        return None
    match operation:
        case Crop():
            return operation.box(size)[2:]
        case Pad(padding=(left, top, right, bottom)):
            return size[0] + top + bottom, size[1] + left + right
        case PadToSize():
            left, top, right, bottom = operation.padding_for(size)
            return size[0] + top + bottom, size[1] + left + right
    return size


def size_after(operations: Sequence[ImageOperation], size: Size | None = None) -> Size | None:
    """Return the (height, width) after all operations.

    Args:
        operations: in order. An unknown operation is taken to keep the size.
        size: before them; None: unknown.

    Returns:
        None when it depends on the image's unknown size or on a random angle.
    """
    for operation in operations:
        if not isinstance(operation, UnknownOperation):
            size = _size_after_one(operation, size)
    return size
