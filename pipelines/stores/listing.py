"""A quick listing of class folders: names, sizes and times, without opening files. The order is that of torchvision's ImageFolder."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.photos import Photos, walk
from feedline.pipelines.stores.protocol import LeftOut
from feedline.profiler.errors import DataError

NOT_IN_CLASS, NO_FILES = "not in a class folder", "a class without files"


@dataclass(frozen=True)
class Source:
    """A regular file.

    Attributes:
        path: relative to the listing's root.
    """

    path: str
    label: int
    bytes: int
    changed_ns: int


@dataclass(frozen=True)
class Listing:
    """All files of a dataset, in the order in which they are packed.

    Attributes:
        left_out: unusable files, known without opening them: broken links, pipes, files beside the class folders, classes without a file.
        checked: whether every file was already checked to be an image.
        linked: files that are symbolic links.
        below: files that lie in a folder below a class folder, whose label they take.
    """

    root: Path
    classes: list[str]
    sources: list[Source]
    left_out: list[LeftOut]
    checked: bool = False
    linked: int = 0

    @property
    def below(self) -> int:
        return sum(source.path.count(os.sep) > 1 for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    def fingerprint(self) -> str:
        """Changes if a file is added, removed, resized, modified or moved to another class."""
        digest = hashlib.sha256("\0".join(self.classes).encode(errors="surrogateescape"))
        for source in self.sources:
            digest.update(f"\n{source.path}\0{source.label}\0{source.bytes}\0{source.changed_ns}".encode(errors="surrogateescape"))
        return digest.hexdigest()[:32]


def list_folder(root: Path) -> Listing:
    """List a folder with one subfolder per class.

    Raises:
        DataError: there is no such folder, it cannot be read, or has no class folder with a file.
    """
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{root} cannot be listed ({error.strerror}): give an image folder with one subfolder per class") from error
    classes = [entry.name for entry in entries if os.path.isdir(entry.path)]
    left_out = [LeftOut(entry.name, NOT_IN_CLASS) for entry in entries if not os.path.isdir(entry.path)]
    sources: list[Source] = []
    linked = 0

    def cannot(error: OSError) -> None:
        left_out.append(LeftOut(os.path.relpath(str(error.filename), root), f"cannot be listed ({error.strerror})"))

    for label, name in enumerate(classes):
        before = len(sources)
        for path in walk(os.path.join(root, name), cannot):
            relative = os.path.relpath(path, root)
            try:
                found = os.stat(path)
            except OSError as error:
                left_out.append(LeftOut(relative, error.strerror or str(error)))
                continue
            if stat.S_ISREG(found.st_mode):
                sources.append(Source(relative, label, found.st_size, found.st_mtime_ns))
                linked += os.path.islink(path)
            else:
                left_out.append(LeftOut(relative, "not a regular file"))
        if len(sources) == before:
            left_out.append(LeftOut(name, NO_FILES))
    if not sources:
        raise DataError(f"{root} has no class folder with a file in it: put the images into one subfolder per class")
    return Listing(Path(root), classes, sources, left_out, linked=linked)


def of_photos(photos: Photos) -> Listing:
    """The listing of a dataset that was already checked: sample i is ``photos.photos[i]``.

    Raises:
        DataError: a file is gone.
    """
    sources = []
    for photo in photos.photos:
        path = os.path.join(photos.root, photo.path)  # an absolute path stays as it is
        try:
            found = os.stat(path)
        except OSError as error:
            raise DataError(f"{path} can no longer be read ({error.strerror})") from error
        sources.append(Source(os.path.relpath(path, photos.root), photo.label, found.st_size, found.st_mtime_ns))
    return Listing(Path(photos.root), list(photos.classes), sources, [], checked=True)
