"""Finds labels that a store would not keep.

It keeps one per sample: the folder that lies directly in the dataset's. Nothing is decoded: names
are compared, and tables are read as text.
"""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from feedline.pipelines.photos import IMAGE_ENDINGS
from feedline.pipelines.stores.image_folder import FolderListing
from feedline.profiler.message import few

_TABLE_ENDINGS = {
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".ndjson",
    ".txt",
    ".lst",
    ".xml",
    ".yaml",
    ".yml",
}
_MAX_TABLES = 16  # files with images' names are annotations of one image each, and are not read
_MAX_TABLE_BYTES = 4 << 20  # of a table
_MIN_NAMED_IMAGES = 10  # images that a table names, or half of all
# characters of a number that counts as an image's name without its ending: other numbers stand in
# any table
_MIN_STEM_LENGTH = 4
_SPLITS = {
    "train",
    "training",
    "val",
    "valid",
    "validation",
    "test",
    "testing",
    "dev",
    "eval",
    "holdout",
}
_ROLES = {
    "annotations",
    "annotation",
    "labels",
    "label",
    "masks",
    "mask",
    "segmentation",
    "segmentations",
    "gt",
    "groundtruth",
    "ground_truth",
}
_SEPARATOR = re.compile(r"[-_. ]+")
_WORD = re.compile(r"[^\s,;|\"'\[\]{}<>()=:]+")


@dataclass(frozen=True)
class OtherLabels:
    """Labels that are not the class folders.

    Attributes:
        message: what they are.
        lost: whether the class folders cannot be meant instead.
        fix: what to do to keep them.
    """

    message: str
    lost: bool
    fix: str = "put the images into one folder per class"


def other_labels(listing: FolderListing) -> list[OtherLabels]:
    """Find all labels that a store of this listing would not have."""
    images = [
        source.path
        for source in listing.sources
        if PurePath(source.path).suffix.lower() in IMAGE_ENDINGS
    ]
    used = {PurePath(path).parts[0] for path in images}
    labels = [*_splits(listing, used), *_roles(images, used), *_below(listing, images, used)]
    annotations = _beside(listing, images, used)
    if annotations is not None:
        return [*labels, annotations]
    return [*labels, *_tables(listing, images, used)]


def _splits(listing: FolderListing, used: set[str]) -> Iterator[OtherLabels]:
    if used and {name.lower() for name in used} <= _SPLITS:
        names = sorted(used)
        folders = " and ".join(str(listing.root / name) for name in names)
        below = any(len(PurePath(source.path).parts) > 2 for source in listing.sources)
        yield OtherLabels(
            f"its folders are the parts of a split, not classes ({few(names, 3)})",
            below,
            f"pack {folders} into stores of their own",
        )


def _roles(images: Sequence[str], used: set[str]) -> Iterator[OtherLabels]:
    """Find folders of masks: their files are named as the images of the other folders are."""
    named = {
        name: of_all
        for name in sorted(used)
        if name.lower() in _ROLES and (of_all := _named_as_others(images, name)) is not None
    }
    for lost in (True, False):
        names = [name for name, of_all in named.items() if of_all == lost]
        if names:
            yield OtherLabels(
                f"{few(names, 3)} would become a class of its own, although most of its files are "
                f"named as other images are",
                lost,
                "keep them where they are",
            )


def _named_as_others(images: Sequence[str], folder: str) -> bool | None:
    """Tell whether a folder has most names of the images outside of it.

    None: most of its own names are none of theirs, or plain numbers. A class may be called ``mask``
    as well: its names differ, or it has another number of images.
    """
    within: set[str] = set()
    others: set[str] = set()
    for path in map(PurePath, images):
        # 0001_mask.png is the mask of 0001.jpg
        words = [word for word in _SEPARATOR.split(path.stem.lower()) if word not in _ROLES]
        (within if path.parts[0] == folder else others).add("_".join(words))
    shared = within & others
    if 2 * len(shared) > max(len(within), len(others)):
        return True
    numbered = sum(name.isdecimal() for name in shared)
    return False if 2 * (len(shared) - numbered) > len(within) else None


def _below(listing: FolderListing, images: Sequence[str], used: set[str]) -> Iterator[OtherLabels]:
    """Find folders that divide the only class folder further."""
    below = {parts[1] for path in images if len(parts := PurePath(path).parts) > 2}
    if len(used) == 1 and len(below) > 1:
        (name,) = used
        if name.lower() not in _SPLITS:
            yield OtherLabels(
                f"{name} has {len(below):,} folders, which may be the classes",
                True,
                f"pack {listing.root / name}",
            )


def _beside(listing: FolderListing, images: Sequence[str], used: set[str]) -> OtherLabels | None:
    """Find files that are called as an image is: boxes, captions, masks."""
    stems = {PurePath(path).stem for path in images}
    others = [
        PurePath(source.path)
        for source in listing.sources
        if PurePath(source.path).suffix.lower() not in IMAGE_ENDINGS
    ]
    endings = Counter(path.suffix.lower() for path in others if path.stem in stems and path.suffix)
    ending, files = max(endings.items(), key=lambda item: item[1], default=("", 0))
    if files < max(1, len(stems) // 2):
        return None
    keep = "keep them beside the store: it has the images' paths"
    return OtherLabels(
        f"{files:,} {ending} files have an image's name, as annotations do", len(used) == 1, keep
    )


def _tables(listing: FolderListing, images: Sequence[str], used: set[str]) -> Iterator[OtherLabels]:
    loose = [entry.path for entry in listing.left_out]
    paths = [
        path
        for path in (*loose, *(source.path for source in listing.sources))
        if PurePath(path).suffix.lower() in _TABLE_ENDINGS
    ]
    label = {PurePath(path).name: PurePath(path).parts[0] for path in images}
    stems = {
        PurePath(name).stem: name
        for name in label
        if not PurePath(name).stem.isdigit() or len(PurePath(name).stem) >= _MIN_STEM_LENGTH
    }
    for path in paths[:_MAX_TABLES]:
        text = _text(listing.root, path)
        named = {name for word in _WORD.findall(text) if (name := _image(word, label, stems))}
        if len(named) < min(_MIN_NAMED_IMAGES, max(1, len(label) // 2)):
            continue
        columns = _columns(path, text, label, stems)
        if len(used) > 1 and any(_is_the_folder(values) for values in columns.values()):
            continue
        column = min(
            (name for name in columns if len({value for _, value in columns[name]}) > 1),
            key=lambda name: _size(columns[name]),
            default="",
        )
        values = (
            f", with {_size(columns[column]):,} different values of {column!r}" if column else ""
        )
        yield OtherLabels(f"{path} names {len(named):,} images{values}", len(used) == 1)


def _text(root: Path, path: str) -> str:
    """Read the beginning of a file; empty where it cannot be read."""
    try:
        with open(os.path.join(root, path), "rb") as file:
            return file.read(_MAX_TABLE_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _image(word: str, label: dict[str, str], stems: dict[str, str]) -> str | None:
    """Return the name of the image that a word names, with or without folder and ending."""
    name = word.rpartition("/")[2].rpartition("\\")[2]
    return name if name in label else stems.get(name)


def _columns(
    path: str, text: str, label: dict[str, str], stems: dict[str, str]
) -> dict[str, list[tuple[str, str]]]:
    """Map each column to (class folder, value) of the rows that name an image.

    Empty of what is no table with a head.
    """
    if PurePath(path).suffix.lower() not in (".csv", ".tsv"):
        return {}
    try:
        head, *rows = list(
            csv.reader(io.StringIO(text), delimiter="\t" if path.lower().endswith(".tsv") else ",")
        )
    except (ValueError, csv.Error):
        return {}
    columns: dict[str, list[tuple[str, str]]] = {name: [] for name in head}
    for row in rows:
        image = next(
            (named for value in row if (named := _image(value.strip(), label, stems))), None
        )
        if image is None or len(row) != len(head):
            continue
        for name, value in zip(head, row, strict=True):
            if _image(value.strip(), label, stems) is None:
                columns[name].append((label[image], value))
    return {name: values for name, values in columns.items() if values}


def _is_the_folder(values: list[tuple[str, str]]) -> bool:
    """Tell whether a column says the same as the class folders."""
    pairs = set(values)
    return (
        1 < len(pairs) == len({folder for folder, _ in pairs}) == len({value for _, value in pairs})
    )


def _size(values: list[tuple[str, str]]) -> int:
    return len({value for _, value in values})
