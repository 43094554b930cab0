"""Checks one image file with Pillow: its type, and what is wrong with it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats by content that ImageFolder, OpenCV and DALI all read, with the endings that go with them.
ENDINGS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "PPM": (".ppm", ".pgm"),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
_EIGHT_BITS = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX"}  # Pillow modes that all loaders convert to the same RGB
_SIXTEEN_BITS = {"I", "I;16", "I;16B", "I;16L", "I;16N", "F"}
_EXIF_ORIENTATION = 0x0112
_TIFF_BITS_PER_SAMPLE = 258


@dataclass(frozen=True)
class Checked:
    """What was found.

    Attributes:
        bad: (kind, says) of the reason why it is left out; None: it is an image that all loaders read.
        remarks: (kind, says) of what is worth knowing about it.
    """

    bytes: int = 0
    format: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    bad: tuple[str, str] | None = None
    remarks: list[tuple[str, str]] = field(default_factory=list)


def check(path: Path) -> Checked:
    """Open and fully decode one file. Never raises: Pillow's errors become ``bad``.

    Pillow decodes a JPEG with errors in its middle without a word; such a file passes here.
    """
    from PIL import Image

    size = 0
    try:
        size = path.stat().st_size
        if size == 0:
            return Checked(bad=("zero_bytes", "the file is empty"))
        with Image.open(path) as image:
            kind = "JPEG" if image.format == "MPO" else str(image.format)  # MPO: a JPEG with more pictures behind it, as phones write
            bad = _unreadable(image, kind)
            if bad is None:
                image.load()
            found = Checked(size, kind, image.width, image.height, image.mode, bad)
            return found if bad else Checked(size, kind, image.width, image.height, image.mode, None, remarks(image, kind, path))
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise nearly everything (SyntaxError, struct.error, ...) on broken files
        return Checked(size, bad=_broken(error))


def _broken(error: Exception) -> tuple[str, str]:
    """(kind, says) of an error that Pillow raised."""
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return "corrupt", f"cannot be read ({error.strerror})"
    if "truncated" in message.lower() or "unexpected end" in message.lower():
        return "truncated", f"the file ends too early ({message})"
    if type(error).__name__ == "UnidentifiedImageError":
        return "corrupt", "not an image, by its content"
    return "corrupt", f"cannot be decoded ({message})"


def _unreadable(image: "Image", kind: str) -> tuple[str, str] | None:
    """Why loaders would read this image differently, known before it is decoded."""
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        return "animated", f"{frames} frames or pages; loaders take one of them, and not all the same one"
    if kind not in ENDINGS:
        return "other_format", f"{kind} is not read by all loaders"
    if image.mode == "CMYK":
        return "cmyk", "CMYK colors; loaders convert them differently"
    if image.mode in _SIXTEEN_BITS or _deep(image):
        return "16_bit", "more than 8 bits per channel; loaders reduce them differently"
    if image.mode not in _EIGHT_BITS:
        return "other_format", f"its colors are {image.mode}, which not all loaders read"
    return None


def _deep(image: "Image") -> bool:
    """Whether a file has more than 8 bits per channel although Pillow's mode does not say so: it opens 16-bit RGB as RGB."""
    bits = getattr(image, "tag_v2", {}).get(_TIFF_BITS_PER_SAMPLE, ())
    if any(value > 8 for value in (bits if isinstance(bits, tuple) else (bits,))):
        return True
    arguments: list[Any] = []
    for tile in getattr(image, "tile", []):
        given = tile[3]
        arguments += given if isinstance(given, list | tuple) else [given]
        if tile[0].startswith("ppm"):
            arguments += [";16" for value in arguments if isinstance(value, int) and value > 255]
    return any(isinstance(value, str) and ";16" in value for value in arguments)


def remarks(image: "Image", kind: str, path: Path) -> list[tuple[str, str]]:
    """(kind, says) of unusual properties of a usable image."""
    found = []
    orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
    if orientation != 1:
        found.append(("exif_rotated", f"EXIF orientation {orientation}; not applied by any loader here, as in torchvision"))
    if path.suffix.lower() not in ENDINGS[kind]:
        found.append(("misnamed", f"a {kind} by its content"))
    return found
