"""An image folder: its listing, its files' content, and the folder itself as a store.

The listing is quick: names, sizes and times, without opening files. Its order is that of
torchvision's ImageFolder. Images are recognised by their first bytes.
"""

import hashlib
import operator
import os
import stat
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.photos import Photos, walk_files
from feedline.pipelines.stores.index import LeftOut
from feedline.profiler.errors import DataError

_HEAD_BYTES = 16  # the longest signature below, with the box type of ISO media files

# Signature at the file's start -> ending; from the formats' specifications, the set that Pillow
# reads and people train on.
_SIGNATURES = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
    b"\x00\x00\x00\x0cjP  \r\n": "jp2",
    b"\xff\x4f\xff\x51": "j2k",
}
_BRANDS = {b"avif": "avif", b"avis": "avif", b"heic": "heic", b"heix": "heic", b"mif1": "heic"}


NOT_IN_CLASS, NO_FILES = "not in a class folder", "a class without files"
HIDDEN = "a hidden folder"
_THREADS = 4
# files held in memory at a time: enough for a disk with a queue, and a gigabyte where each has 64
# MB
_MAX_FILES_AHEAD = 16


def _image_ending(head: bytes) -> str | None:
    """Return the extension for the content; None if it is not a known image.

    Args:
        head: the first ``_HEAD_BYTES`` bytes, or fewer where the file is shorter.
    """
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return "bmp"
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3] in (b" ", b"\t", b"\n", b"\r"):
        return "pnm"
    return _BRANDS.get(head[8:12]) if head[4:8] == b"ftyp" else None


def _is_cut_off(value: bytes, kind: str | None) -> bool:
    """Tell whether a JPEG or WebP file is truncated, as after an interrupted download.

    Pillow refuses to decode those.

    Args:
        value: the whole file.
        kind: of ``_image_ending``.
    """
    if kind == "jpg":
        # EOI; one before the scan ends a thumbnail. ITU-T T.81, B.1.1.3
        return value.rfind(b"\xff\xd9", _scan(value)) < 0
    return kind == "webp" and int.from_bytes(value[4:8], "little") + 8 > len(value)


def _scan(value: bytes) -> int:
    """Find where the first scan of a JPEG begins: behind segments that say their length."""
    at = 2
    while value[at : at + 1] == b"\xff" and value[at + 1 : at + 2] != b"\xda":
        at += (
            1
            if value[at + 1 : at + 2] == b"\xff"
            else 2 + int.from_bytes(value[at + 2 : at + 4], "big")
        )
    return at


@dataclass(frozen=True)
class SourceFile:
    """A regular file.

    Attributes:
        path: relative to the listing's root.
    """

    path: str
    label: int
    bytes: int
    changed_ns: int


@dataclass(frozen=True)
class FolderListing:
    """All files of a dataset, in the order in which they are packed.

    Attributes:
        left_out: unusable files, known without opening them: broken links, pipes, files and hidden
            folders beside the class folders, classes without a file.
        checked: whether every file was already checked to be an image.
        linked: files that are symbolic links.
        below: files that lie in a folder below a class folder, whose label they take.
    """

    root: Path
    classes: list[str]
    sources: list[SourceFile]
    left_out: list[LeftOut]
    checked: bool = False
    linked: int = 0

    @property
    def below(self) -> int:
        """How many files lie in a folder below a class folder."""
        return sum(source.path.count(os.sep) > 1 for source in self.sources)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(source.bytes for source in self.sources)

    def fingerprint(self) -> str:
        """Return a checksum of all paths, labels, sizes and times.

        It changes if a file is added, removed, resized, modified or moved to another class.
        """
        digest = hashlib.sha256("\0".join(self.classes).encode(errors="surrogateescape"))
        for source in self.sources:
            digest.update(
                f"\n{source.path}\0{source.label}\0{source.bytes}\0{source.changed_ns}".encode(
                    errors="surrogateescape"
                )
            )
        return digest.hexdigest()[:32]


def list_folder(root: Path) -> FolderListing:
    """List a folder with one subfolder per class.

    Hidden folders are no classes, as in ``photos.scan``: both give the same labels.

    Raises:
        DataError: there is no such folder, it cannot be read, or has no class folder with a file.
    """
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"{root} cannot be listed ({error.strerror}): give an image folder with one subfolder "
            f"per class"
        ) from error
    classes: list[str] = []
    left_out: list[LeftOut] = []
    for entry in entries:
        if not os.path.isdir(entry.path):
            left_out.append(LeftOut(entry.name, NOT_IN_CLASS))
        elif entry.name.startswith("."):
            left_out.append(LeftOut(entry.name, HIDDEN))
        else:
            classes.append(entry.name)
    sources: list[SourceFile] = []
    linked = 0

    def cannot(error: OSError) -> None:
        left_out.append(
            LeftOut(
                os.path.relpath(str(error.filename), root), f"cannot be listed ({error.strerror})"
            )
        )

    for label, name in enumerate(classes):
        before = len(sources)
        for path in walk_files(os.path.join(root, name), cannot):
            relative = os.path.relpath(path, root)
            try:
                status = os.stat(path)
            except OSError as error:
                left_out.append(LeftOut(relative, error.strerror or str(error)))
                continue
            if stat.S_ISREG(status.st_mode):
                sources.append(SourceFile(relative, label, status.st_size, status.st_mtime_ns))
                linked += os.path.islink(path)
            else:
                left_out.append(LeftOut(relative, "not a regular file"))
        if len(sources) == before:
            left_out.append(LeftOut(name, NO_FILES))
    if not sources:
        raise DataError(
            f"{root} has no class folder with a file in it: put the images into one subfolder per "
            f"class"
        )
    return FolderListing(Path(root), classes, sources, left_out, linked=linked)


def list_photos(photos: Photos) -> FolderListing:
    """List a dataset that was already checked: sample i is ``photos.photos[i]``.

    Raises:
        DataError: a file is gone.
    """
    sources = []
    for photo in photos.photos:
        path = os.path.join(photos.root, photo.path)  # an absolute path stays as it is
        try:
            status = os.stat(path)
        except OSError as error:
            raise DataError(f"{path} can no longer be read ({error.strerror})") from error
        sources.append(
            SourceFile(
                os.path.relpath(path, photos.root), photo.label, status.st_size, status.st_mtime_ns
            )
        )
    return FolderListing(Path(photos.root), list(photos.classes), sources, [], checked=True)


@dataclass(frozen=True)
class ImageContent:
    """A file's content, and the extension for it."""

    value: bytes
    ending: str


def read_ahead(
    listing: FolderListing, first: int, max_bytes: int
) -> Generator[tuple[int, ImageContent | LeftOut], None, None]:
    """Yield the content of each file from ``first`` on, or why it cannot be used."""
    with ThreadPoolExecutor(_THREADS, "feedline-pack") as threads:
        waiting: deque[tuple[int, Future[ImageContent | LeftOut]]] = deque()
        try:
            for number in range(first, len(listing.sources)):
                waiting.append(
                    (
                        number,
                        threads.submit(read_image, listing, listing.sources[number], max_bytes),
                    )
                )
                if len(waiting) >= _MAX_FILES_AHEAD:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            while waiting:
                ready, future = waiting.popleft()
                yield ready, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def read_image(
    listing: FolderListing, source: SourceFile, max_bytes: int
) -> ImageContent | LeftOut:
    """Return a file's content, or why it cannot be used.

    Files that are not images are not read to the end.
    """
    try:
        with open(os.path.join(listing.root, source.path), "rb", buffering=0) as file:
            head = file.read(_HEAD_BYTES)
            kind = _image_ending(head)
            if not head:
                return LeftOut(source.path, "zero bytes")
            if kind is None and not listing.checked:
                return LeftOut(source.path, "not an image, by its content")
            if source.bytes > max_bytes:
                return LeftOut(
                    source.path, f"{source.bytes:,} bytes, and the format holds {max_bytes:,}"
                )
            value = head + file.readall()
    except OSError as error:
        return LeftOut(source.path, f"cannot be read ({error.strerror})")
    if len(value) != source.bytes:
        return LeftOut(
            source.path,
            f"changed while it was packed: {len(value):,} bytes, {source.bytes:,} when it was "
            f"listed",
        )
    if _is_cut_off(value, kind):
        return LeftOut(
            source.path,
            f"the file ends too early, after {len(value):,} bytes: copy it again from its source",
        )
    return ImageContent(value, kind or os.path.splitext(source.path)[1][1:].lower()[:8] or "bin")


class FileStore:
    """Reads the files of a folder. Keeps nothing open, so it works in any process."""

    def __init__(self, source: Path | str | Photos) -> None:
        """List the folder; samples have the same numbers as in a packed store.

        Raises:
            DataError: there is nothing that can be used.
        """
        listing = list_photos(source) if isinstance(source, Photos) else list_folder(Path(source))
        self.path = listing.root.absolute()
        self.classes = listing.classes
        self._sources = (
            listing.sources
            if listing.checked
            else [
                source_file
                for source_file in listing.sources
                if begins_as_image(self.path, source_file)
            ]
        )
        if not self._sources:
            raise DataError(
                f"{self.path}: none of its {len(listing.sources):,} files is a readable image: "
                f"give a folder with images"
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._sources)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """Return the file's bytes and its label.

        Raises:
            IndexError: there is no such sample.
            DataError: it can no longer be read.
        """
        source = self._sources[operator.index(number)]
        try:
            with open(self.path / source.path, "rb", buffering=0) as file:
                return file.read(), source.label
        except OSError as error:
            raise DataError(
                f"{self.path / source.path} cannot be read ({error.strerror}): restore it, or "
                f"open the folder again"
            ) from error

    def name(self, number: int) -> str:
        """Return the file's path, relative to the folder."""
        return self._sources[operator.index(number)].path

    def close(self) -> None:
        """Do nothing: no file is open."""


def begins_as_image(root: Path, source: SourceFile) -> bool:
    """Tell whether a file can be read and begins as an image does."""
    try:
        with open(os.path.join(root, source.path), "rb", buffering=0) as file:
            return _image_ending(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False
