"""Every operation of a recipe, with the names and settings of torchvision.

Sizes are (height, width) and padding is (left, top, right, bottom), in pixels, as in torchvision; fills are 0 to 255; ``interpolation``
is torchvision's word: nearest, bilinear, bicubic, lanczos, box, hamming. A random operation is never applied itself: draw.py turns it
into fixed ones. A fixed position is a share of the image's size, so that it fits images of every size.
"""

from dataclasses import dataclass

Size = tuple[int, int]
Range = tuple[float, float]
Fill = tuple[float, ...]


@dataclass(frozen=True)
class Operation:
    """One transform with its settings."""

    @property
    def name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Random(Operation):
    """An operation whose parameters are drawn for every image."""


@dataclass(frozen=True)
class Unknown(Operation):
    """A transform without a translation: a lambda, a class of the user's, an option that only torchvision has."""

    what: str
    why: str

    @property
    def name(self) -> str:
        return self.what


@dataclass(frozen=True)
class Resize(Operation):
    """Attributes:
    size: (height, width), or one number: the shorter side, with the other in proportion.
    max_size: the longer side is at most this many pixels.
    """

    size: Size | int
    interpolation: str = "bilinear"
    max_size: int | None = None
    antialias: bool = True


@dataclass(frozen=True)
class CenterCrop(Operation):
    size: Size


@dataclass(frozen=True)
class Crop(Operation):
    """Attributes:
    top, left, height, width: shares of the image's height and width; each is rounded to the nearest pixel.
    """

    top: float
    left: float
    height: float
    width: float


@dataclass(frozen=True)
class Pad(Operation):
    """Attributes:
    mode: constant, edge, reflect or symmetric.
    """

    padding: tuple[int, int, int, int]
    fill: Fill = (0.0,)
    mode: str = "constant"


@dataclass(frozen=True)
class PadToSize(Operation):
    """What RandomCrop(pad_if_needed=True) does to an image smaller than its size: pad both sides by the missing amount."""

    size: Size
    fill: Fill = (0.0,)
    mode: str = "constant"


@dataclass(frozen=True)
class Flip(Operation):
    horizontal: bool


@dataclass(frozen=True)
class Adjust(Operation):
    """Attributes:
    kind: brightness, contrast, saturation, sharpness (factor 1: unchanged) or hue (-0.5 to 0.5, 0: unchanged).
    """

    kind: str
    factor: float


@dataclass(frozen=True)
class Grayscale(Operation):
    """To gray, in three equal channels."""


@dataclass(frozen=True)
class Blur(Operation):
    """Attributes:
    kernel: (width, height), odd; sigma: pixels, of both directions.
    """

    kernel: Size
    sigma: float


@dataclass(frozen=True)
class Affine(Operation):
    """torchvision's functional ``affine``.

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
class Rotate(Operation):
    """Attributes:
    angle: degrees, counter-clockwise, as in torchvision.
    """

    angle: float
    interpolation: str = "nearest"
    expand: bool = False
    center: Range | None = None
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class Tone(Operation):
    """A change of gray levels in RandAugment and TrivialAugmentWide.

    Attributes:
        kind: posterize (magnitude: bits kept), solarize (magnitude: threshold), autocontrast, equalize.
    """

    kind: str
    magnitude: float = 0.0


@dataclass(frozen=True)
class Erase(Operation):
    """Attributes:
    top, left, height, width: shares of the image's.
    value: one a channel (or one for all), in the tensor's units; None: normally distributed noise.
    normalised: whether it follows Normalize, or comes before it.
    """

    top: float
    left: float
    height: float
    width: float
    value: Fill | None = (0.0,)
    normalised: bool = True


@dataclass(frozen=True)
class RandomHorizontalFlip(Random):
    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(Random):
    p: float = 0.5


@dataclass(frozen=True)
class RandomGrayscale(Random):
    p: float = 0.1


@dataclass(frozen=True)
class RandomResizedCrop(Random):
    """Attributes:
    scale: of the crop's area, as a share of the image's; ratio: of its width to its height.
    """

    size: Size
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class RandomCrop(Random):
    """Attributes:
    padding: before the crop; None: none.
    """

    size: Size
    padding: tuple[int, int, int, int] | None = None
    pad_if_needed: bool = False
    fill: Fill = (0.0,)
    mode: str = "constant"


@dataclass(frozen=True)
class ColorJitter(Random):
    """Applied in random order, as in torchvision. Each value is the range of a factor (hue: of a shift), or None for no change."""

    brightness: Range | None = None
    contrast: Range | None = None
    saturation: Range | None = None
    hue: Range | None = None


@dataclass(frozen=True)
class GaussianBlur(Random):
    """Attributes:
    kernel: (width, height), odd; sigma: range, pixels.
    """

    kernel: Size
    sigma: Range = (0.1, 2.0)


@dataclass(frozen=True)
class RandomAffine(Random):
    """Attributes:
    degrees: range; translate: largest shares (x, y); shear: (x from, x to, y from, y to), degrees.
    """

    degrees: Range
    translate: Range | None = None
    scale: Range | None = None
    shear: tuple[float, float, float, float] | None = None
    interpolation: str = "nearest"
    fill: Fill = (0.0,)
    center: Range | None = None


@dataclass(frozen=True)
class RandomRotation(Random):
    degrees: Range
    interpolation: str = "nearest"
    expand: bool = False
    center: Range | None = None
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class RandAugment(Random):
    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class TrivialAugmentWide(Random):
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = (0.0,)


@dataclass(frozen=True)
class RandomErasing(Random):
    """Attributes: as those of Erase."""

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: Fill | None = (0.0,)
    normalised: bool = True


@dataclass(frozen=True)
class RandomApply(Random):
    """All of ``operations``, or none."""

    operations: tuple[Operation, ...]
    p: float = 0.5
