"""A small dataset of real photographs of odd file sizes, and stores packed from it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from planted import photos

from feedline.pipelines.stores import STORE_KINDS, pack

COUNT = 13
CLASSES = ("cat", "dog", "été")
SHARD_BYTES = 60_000  # a handful of files each, so that there are several


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Three classes of JPEGs of about 10 kB, one in a folder of its own below its class."""
    root = tmp_path_factory.mktemp("data") / "photos"
    for number, name in enumerate(CLASSES):
        photos.write(root / name, 160 + 16 * number, 120, COUNT, quality=85 + number)
    (root / "cat" / "more").mkdir()
    (root / "cat" / "000.jpg").rename(root / "cat" / "more" / "sp ace.jpg")
    return root


@pytest.fixture(scope="session")
def packed(folder, tmp_path_factory) -> dict[str, Path]:
    """A whole store of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("stores")
    return {
        kind: pack(folder, root / kind, kind, shard_bytes=SHARD_BYTES).path for kind in STORE_KINDS
    }


@pytest.fixture
def copied(packed, tmp_path) -> Callable[[str], Path]:
    """A copy of a whole store, to be damaged."""

    def copy(kind: str) -> Path:
        return Path(shutil.copytree(packed[kind], tmp_path / f"copy-{kind}"))

    return copy
