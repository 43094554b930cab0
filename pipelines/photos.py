"""The user's images: a folder with one subfolder per class, as in torchvision's ImageFolder. Every file is checked once.

What the loaders cannot all read alike (CMYK, 16 bits, animations, ...) is left out of the comparison and named.
"""

import os
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.pipelines.photo_check import ENDINGS, Checked, check
from feedline.profiler.errors import DataError, MissingDependency

if TYPE_CHECKING:
    from PIL.Image import Image


def walk(folder: str | os.PathLike[str], cannot: Callable[[OSError], None] | None = None) -> Iterator[str]:
    """All files below a folder, in the order of torchvision's ImageFolder: each folder sorted. Links are followed.

    A link to a folder above itself is not, which ImageFolder follows until the operating system ends it: 40 times every file.

    Args:
        cannot: called with the error of a folder that cannot be listed; the others are walked.
    """
    above: dict[str, frozenset[str]] = {}  # folder, as walked -> the real folders on the way to it
    found: list[tuple[str, list[str]]] = []
    for place, below, names in os.walk(os.fspath(folder), onerror=cannot, followlinks=True):
        real, before = os.path.realpath(place), above.pop(place, frozenset())
        if real in before:
            below.clear()
            continue
        above |= {os.path.join(place, name): before | {real} for name in below}
        found.append((place, sorted(names)))
    for place, names in sorted(found):
        yield from (os.path.join(place, name) for name in names)


# Files with other endings are not looked at, as torchvision does; .gif is, to be named.
LOOKED_AT = {ending for endings in ENDINGS.values() for ending in endings} | {".gif"}


@dataclass(frozen=True)
class Photo:
    """One file.

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
        """Its image as Pillow decodes it, in RGB. Raises OSError."""
        from PIL import Image

        with Image.open(self.path) as image:
            return image.convert("RGB")


@dataclass(frozen=True)
class Problem:
    """A file that is left out, or a remark on one that is used.

    Attributes:
        path: of the file, or of the folder of an ``empty_class``.
        kind: left out: ``zero_bytes``, ``truncated``, ``corrupt``, ``cmyk``, ``16_bit``, ``animated``, ``other_format``; remarks:
            ``exif_rotated``, ``misnamed``, ``empty_class``.
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
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.photos)

    @property
    def mean_bytes(self) -> float:
        return sum(photo.bytes for photo in self.photos) / len(self.photos)


def scan(root: Path, limit: int | None = None, seed: int = 0) -> Photos:
    """Check every file of a dataset, decoding each once.

    Args:
        root: a folder per class, as ImageFolder reads it (files in folders below belong to the class, hidden folders to none); a folder
            with images and no folders is one class.
        limit: take this many usable images, equally many of each class if possible, chosen by ``seed``. Files that are not chosen
            are not looked at.

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
    photos, problems = _examine(candidates, limit)
    used = {photo.label for photo in photos}
    for name, paths in classes.items():
        if not paths or (limit is None and label[name] not in used):
            message = f"class {name} has {'no image' if not paths else 'no image that can be used'}"
            problems.append(Problem(str(root / name), "empty_class", message, left_out=False))
    if not photos:
        first = next((f" ({problem.path}: {problem.message})" for problem in problems if problem.left_out), "")
        raise DataError(f"{root} contains no usable image{first}: give an image folder with one subfolder per class")
    place = {str(path): number for number, path in enumerate(path for paths in classes.values() for path in paths)}
    photos.sort(key=lambda photo: place[photo.path])
    problems.sort(key=lambda problem: (place.get(problem.path, len(place)), problem.kind))
    return Photos(root, list(classes), photos, problems)


def _classes(root: Path) -> dict[str, list[Path]]:
    """Class name -> its files, both sorted."""
    if not os.path.isdir(root):
        there = "is a file" if os.path.exists(root) else "does not exist"
        raise DataError(f"{root} {there}: give an image folder with one subfolder per class")
    try:
        folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        classes = {name: [path for path in map(Path, walk(root / name)) if _is_image(path)] for name in folders}
        if not any(classes.values()):
            loose = [path for path in sorted(root.iterdir()) if _is_image(path)]
            classes = {root.resolve().name: loose} if loose else classes
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read ({error.strerror}): you need permission to read it") from error
    if not any(classes.values()):
        raise DataError(f"{root} has no images ({', '.join(sorted(LOOKED_AT))}): give an image folder with one subfolder per class")
    return classes


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in LOOKED_AT and not path.is_dir()


def _balanced(classes: dict[str, list[Path]], label: dict[str, int], seed: int) -> list[tuple[Path, int]]:
    """Every file, shuffled in its class, one class after the other in turn."""
    dice = random.Random(seed)
    columns = [[(path, label[name]) for path in dice.sample(paths, len(paths))] for name, paths in classes.items()]
    return [one for row in zip_longest(*columns) for one in row if one is not None]


def _examine(candidates: list[tuple[Path, int]], limit: int | None) -> tuple[list[Photo], list[Problem]]:
    """Look at files until ``limit`` can be used."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingDependency("reading images requires Pillow: pip install pillow") from error

    PIL.Image.init()  # the plugins, before threads race to load them
    photos: list[Photo] = []
    problems: list[Problem] = []
    wanted = len(candidates) if limit is None else limit
    threads = min(os.cpu_count() or 1, 16)
    rest = iter(candidates)
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        warnings.simplefilter("ignore")  # Pillow warns of odd EXIF data and of very large images; both decode
        while len(photos) < wanted and (some := list(islice(rest, min(wanted - len(photos), 1024)))):
            looked_at = pool.map(check, [path for path, _ in some])
            with closing(looked_at):  # type: ignore[type-var]  # a generator; closing it calls off what has not begun
                for (path, label), found in zip(some, looked_at):
                    problems += _problems(path, found)
                    if found.bad is None:
                        photos.append(Photo(str(path), label, found.bytes, found.format, found.width, found.height, found.mode))
    return photos, problems


def _problems(path: Path, found: Checked) -> Iterator[Problem]:
    if found.bad:
        yield Problem(str(path), *found.bad, left_out=True)
    for kind, message in found.remarks:
        yield Problem(str(path), kind, message, left_out=False)
