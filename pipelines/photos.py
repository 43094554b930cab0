"""The user's images: a folder with one subfolder per class, as in torchvision's ImageFolder.

Every file is checked once. What the loaders cannot all read alike (CMYK, 16 bits, animations, ...)
is left out of the comparison and named.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.profiler.errors import DataError, MissingDependency, OutputError
from feedline.profiler.files import own_folders

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats by content that ImageFolder, OpenCV and DALI all read, with the endings that go with them.
_FORMAT_ENDINGS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "PPM": (".ppm", ".pgm"),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
# Pillow modes that all loaders convert to the same RGB
_EIGHT_BITS = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX"}
_SIXTEEN_BITS = {"I", "I;16", "I;16B", "I;16L", "I;16N", "F"}
_EXIF_ORIENTATION = 0x0112
_TIFF_BITS_PER_SAMPLE = 258
# Files with other endings are not looked at, as torchvision does; .gif is, to be named.
IMAGE_ENDINGS = {ending for endings in _FORMAT_ENDINGS.values() for ending in endings} | {".gif"}


@dataclass(frozen=True)
class _ImageCheck:
    """One image file, as Pillow sees it.

    Attributes:
        bad: (kind, says) of the reason why it is left out; None: all loaders read it.
        remarks: (kind, says) of what is worth knowing about it.
    """

    bytes: int = 0
    format: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    bad: tuple[str, str] | None = None
    remarks: list[tuple[str, str]] = field(default_factory=list)


def check_image(path: Path) -> _ImageCheck:
    """Open and fully decode one file. Never raises: Pillow's errors become ``bad``.

    Pillow decodes a JPEG with errors in its middle without a word; such a file passes here.
    """
    from PIL import Image

    size = 0
    try:
        size = path.stat().st_size
        if size == 0:
            return _ImageCheck(bad=("zero_bytes", "the file is empty"))
        with Image.open(path) as image:
            # MPO: a JPEG with more pictures behind it, as phones write
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            bad = _unreadable(image, kind)
            if bad is None:
                image.load()
            checked = _ImageCheck(size, kind, image.width, image.height, image.mode, bad)
            return (
                checked
                if bad
                else _ImageCheck(
                    size,
                    kind,
                    image.width,
                    image.height,
                    image.mode,
                    None,
                    _remarks(image, kind, path),
                )
            )
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise nearly everything (SyntaxError, struct.error, ...) on broken files
        return _ImageCheck(size, bad=_broken(error))


def _broken(error: Exception) -> tuple[str, str]:
    """Return (kind, says) of an error that Pillow raised."""
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return "corrupt", f"cannot be read ({error.strerror})"
    if "truncated" in message.lower() or "unexpected end" in message.lower():
        return "truncated", f"the file ends too early ({message})"
    if type(error).__name__ == "UnidentifiedImageError":
        return "corrupt", "not an image, by its content"
    return "corrupt", f"cannot be decoded ({message})"


def _unreadable(image: "Image", kind: str) -> tuple[str, str] | None:
    """Return (kind, says) of why loaders would read this image differently."""
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        return (
            "animated",
            f"{frames} frames or pages; loaders take one of them, and not all the same one",
        )
    if kind not in _FORMAT_ENDINGS:
        return "other_format", f"{kind} is not read by all loaders"
    if image.mode == "CMYK":
        return "cmyk", "CMYK colors; loaders convert them differently"
    if image.mode in _SIXTEEN_BITS or _deep(image):
        return "16_bit", "more than 8 bits per channel; loaders reduce them differently"
    if image.mode not in _EIGHT_BITS:
        return "other_format", f"its colors are {image.mode}, which not all loaders read"
    return None


def _deep(image: "Image") -> bool:
    """Tell whether a file has more than 8 bits per channel although Pillow's mode says otherwise.

    Pillow opens 16-bit RGB as RGB.
    """
    bits = getattr(image, "tag_v2", {}).get(_TIFF_BITS_PER_SAMPLE, ())
    if any(value > 8 for value in (bits if isinstance(bits, tuple) else (bits,))):
        return True
    arguments: list[Any] = []
    for tile in getattr(image, "tile", []):
        settings = tile[3]
        arguments += settings if isinstance(settings, list | tuple) else [settings]
        if tile[0].startswith("ppm"):
            arguments += [";16" for value in arguments if isinstance(value, int) and value > 255]
    return any(isinstance(value, str) and ";16" in value for value in arguments)


def _remarks(image: "Image", kind: str, path: Path) -> list[tuple[str, str]]:
    """List (kind, says) of unusual properties of a usable image."""
    remarks = []
    orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
    if orientation != 1:
        remarks.append(
            (
                "exif_rotated",
                f"EXIF orientation {orientation}; not applied by any loader here, as in "
                f"torchvision",
            )
        )
    if path.suffix.lower() not in _FORMAT_ENDINGS[kind]:
        remarks.append(("misnamed", f"a {kind} by its content"))
    return remarks


def walk_files(
    folder: str | os.PathLike[str], cannot: Callable[[OSError], None] | None = None
) -> Iterator[str]:
    """Yield all files below a folder, in the order of torchvision's ImageFolder.

    Each folder is sorted. Links are followed; a link to a folder above itself is not, which
    ImageFolder follows until the operating system ends it: 40 times every file.

    Args:
        folder: where to begin.
        cannot: called with the error of a folder that cannot be listed; the others are walked.
    """
    above: dict[str, frozenset[str]] = {}  # folder, as walked -> the real folders on the way to it
    folders: list[tuple[str, list[str]]] = []
    for place, below, names in os.walk(os.fspath(folder), onerror=cannot, followlinks=True):
        real, before = os.path.realpath(place), above.pop(place, frozenset())
        if real in before:
            below.clear()
            continue
        above |= {os.path.join(place, name): before | {real} for name in below}
        folders.append((place, sorted(names)))
    for place, names in sorted(folders):
        yield from (os.path.join(place, name) for name in names)


@dataclass(frozen=True)
class Photo:
    """One usable image file.

    Attributes:
        format: by its content, not its name: ``JPEG``, ``PNG``, ...
        mode: Pillow's: ``RGB``, ``L``, ...
    """

    path: str
    label: int
    bytes: int
    format: str
    width: int
    height: int
    mode: str

    def decoded(self) -> "Image":
        """Decode it with Pillow, in RGB. Raises OSError."""
        from PIL import Image

        with Image.open(self.path) as image:
            return image.convert("RGB")


@dataclass(frozen=True)
class _Problem:
    """A file that is left out, or a remark on one that is used.

    Attributes:
        path: of the file, or of the folder of an ``empty_class``.
        kind: left out: ``zero_bytes``, ``truncated``, ``corrupt``, ``cmyk``, ``16_bit``,
            ``animated``, ``other_format``; remarks: ``exif_rotated``, ``misnamed``,
            ``empty_class``.
        left_out: whether the comparison excludes it.
    """

    path: str
    kind: str
    message: str
    left_out: bool


@dataclass(frozen=True)
class Photos:
    """A dataset; a sample's index is its position in ``photos``."""

    root: Path
    classes: list[str]
    photos: list[Photo]
    problems: list[_Problem] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self.photos)

    def spread(self, most: int) -> list[Photo]:
        """Return at most so many photos, at equal distances over the dataset."""
        if len(self.photos) <= most:
            return list(self.photos)
        return [self.photos[number * len(self.photos) // most] for number in range(most)]

    @property
    def mean_bytes(self) -> float:
        """The mean size of a file."""
        return sum(photo.bytes for photo in self.photos) / len(self.photos)


def _tell_nobody(done: int, of: int) -> None:
    """Tell nothing."""


def scan(
    root: Path,
    limit: int | None = None,
    seed: int = 0,
    tell: Callable[[int, int], object] = _tell_nobody,
) -> Photos:
    """Check every file of a dataset, decoding each once.

    Args:
        root: a folder per class, as ImageFolder reads it (files in folders below belong to the
            class, hidden folders to none); a folder with images and no folders is one class.
        limit: take this many usable images, equally many of each class if possible. Files that are
            not chosen are not looked at.
        seed: chooses them.
        tell: called after each file: how many are done, and of how many.

    Returns:
        Images in the order of ImageFolder; a class without an image keeps its label.

    Raises:
        DataError: the folder is missing, or no image in it can be used.
        MissingDependency: Pillow is not installed.
    """
    root = Path(root)
    classes = _classes(root)
    label = {name: number for number, name in enumerate(classes)}
    candidates = [(path, label[name]) for name, paths in classes.items() for path in paths]
    if limit is not None:
        candidates = _balanced(classes, label, seed)
    photos, problems = _examine(candidates, limit, tell)
    used = {photo.label for photo in photos}
    for name, paths in classes.items():
        if not paths or (limit is None and label[name] not in used):
            message = f"class {name} has {'no image' if not paths else 'no image that can be used'}"
            problems.append(_Problem(str(root / name), "empty_class", message, left_out=False))
    if not photos:
        first = next(
            (f" ({problem.path}: {problem.message})" for problem in problems if problem.left_out),
            "",
        )
        raise DataError(
            f"{root} contains no usable image{first}: give an image folder with one subfolder per "
            f"class"
        )
    place = {
        str(path): number
        for number, path in enumerate(path for paths in classes.values() for path in paths)
    }
    photos.sort(key=lambda photo: place[photo.path])
    problems.sort(key=lambda problem: (place.get(problem.path, len(place)), problem.kind))
    return Photos(root, list(classes), photos, problems)


_SCAN_BEGIN = b'{"feedline_scan": 1, '


def scan_once(root: Path, file: Path) -> Photos:
    """Scan a dataset as ``scan``, or read from a file what an earlier scan found.

    Of processes that begin at the same time, one scans. The data is scanned again when a file has
    come, gone, or another size or time of change.

    Args:
        root: as of ``scan``.
        file: is made if it is missing.

    Raises:
        DataError, MissingDependency: as ``scan``.
        OutputError: the file cannot be written, or feedline did not write it.
    """
    root = Path(root)
    state = _state(root)
    with suppress(OSError):
        if (photos := _found_before(file.read_bytes(), root, state)) is not None:
            return photos
    try:
        with open(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b") as kept:
            own_folders.lock(kept.fileno(), fcntl.LOCK_EX, wait=True)
            content = kept.read()
            if not content.startswith(_SCAN_BEGIN[: len(content)]):
                raise OutputError(f"{file} was not written by feedline", "name another file")
            photos = _found_before(content, root, state)  # of a process that was faster
            if photos is None:
                photos = scan(root)
                found = {"state": state, **dataclasses.asdict(photos), "root": ""}
                kept.seek(0)
                kept.truncate()
                kept.write(_SCAN_BEGIN + json.dumps(found)[1:].encode())
    except OSError as error:
        raise OutputError.unwritable(file, error, "name another file") from error
    return photos


def _found_before(content: bytes, root: Path, state: str) -> Photos | None:
    """Return the result of a scan of this state of the data; None: of another, or cut off."""
    try:
        found = json.loads(content)
        if found["state"] != state:
            return None
        photos = [Photo(**fields) for fields in found["photos"]]
        problems = [_Problem(**fields) for fields in found["problems"]]
    except (ValueError, LookupError, TypeError):
        return None
    return Photos(root, found["classes"], photos, problems)


def _state(root: Path) -> str:
    """Return a checksum of what a scan depends on: paths, sizes, times, and Pillow's version."""
    state = hashlib.sha256(_pillow().__version__.encode())
    for name, paths in _classes(root).items():
        state.update(os.fsencode(name) + b"\0")
        for path in paths:
            size = changed_ns = 0
            with suppress(OSError):  # a broken link
                about = path.stat()
                size, changed_ns = about.st_size, about.st_mtime_ns
            state.update(os.fsencode(path) + b"\0%d %d\0" % (size, changed_ns))
    return state.hexdigest()


def _classes(root: Path) -> dict[str, list[Path]]:
    """Map each class name to its files, both sorted."""
    if not os.path.isdir(root):
        state = "is a file" if os.path.exists(root) else "does not exist"
        raise DataError(f"{root} {state}: give an image folder with one subfolder per class")
    try:
        folders = sorted(
            entry.name
            for entry in root.iterdir()
            if entry.is_dir() and not entry.name.startswith(".")
        )
        classes = {
            name: [path for path in map(Path, walk_files(root / name)) if _is_image(path)]
            for name in folders
        }
        if not any(classes.values()):
            loose = [path for path in sorted(root.iterdir()) if _is_image(path)]
            classes = {root.resolve().name: loose} if loose else classes
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be read ({error.strerror}): you need permission to read it"
        ) from error
    if not any(classes.values()):
        raise DataError(
            f"{root} has no images ({', '.join(sorted(IMAGE_ENDINGS))}): give an image folder "
            f"with one subfolder per class"
        )
    return classes


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS and not path.is_dir()


def _balanced(
    classes: dict[str, list[Path]], label: dict[str, int], seed: int
) -> list[tuple[Path, int]]:
    """Shuffle each class's files, and take one of each class in turn."""
    dice = random.Random(seed)
    columns = [
        [(path, label[name]) for path in dice.sample(paths, len(paths))]
        for name, paths in classes.items()
    ]
    return [
        candidate for row in zip_longest(*columns) for candidate in row if candidate is not None
    ]


def _examine(
    candidates: list[tuple[Path, int]], limit: int | None, tell: Callable[[int, int], object]
) -> tuple[list[Photo], list[_Problem]]:
    """Check files until ``limit`` can be used."""
    _pillow().Image.init()  # the plugins, before threads race to load them
    photos: list[Photo] = []
    problems: list[_Problem] = []
    wanted = len(candidates) if limit is None else min(limit, len(candidates))
    examined = 0
    threads = min(os.cpu_count() or 1, 16)
    rest = iter(candidates)
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        # Pillow warns of odd EXIF data and of very large images; both decode
        warnings.simplefilter("ignore")
        while len(photos) < wanted and (
            chunk := list(islice(rest, min(wanted - len(photos), 1024)))
        ):
            looked_at = pool.map(check_image, [path for path, _ in chunk])
            with closing(looked_at):  # type: ignore[type-var]  # a generator; closing it calls off what has not begun
                for (path, label), checked in zip(chunk, looked_at):
                    examined += 1
                    tell(min(examined, wanted), wanted)
                    problems += _problems(path, checked)
                    if checked.bad is None:
                        photos.append(
                            Photo(
                                str(path),
                                label,
                                checked.bytes,
                                checked.format,
                                checked.width,
                                checked.height,
                                checked.mode,
                            )
                        )
    return photos, problems


def _pillow() -> Any:
    """Import Pillow. Raises MissingDependency."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingDependency("reading images requires Pillow: pip install pillow") from error
    return PIL


def _problems(path: Path, checked: _ImageCheck) -> Iterator[_Problem]:
    if checked.bad:
        yield _Problem(str(path), *checked.bad, left_out=True)
    for kind, message in checked.remarks:
        yield _Problem(str(path), kind, message, left_out=False)
