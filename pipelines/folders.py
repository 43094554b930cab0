"""Lists the files in a class folder."""

import os
from collections.abc import Callable, Iterator


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
