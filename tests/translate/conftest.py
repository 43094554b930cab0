"""A few real photographs, and a picture whose colors say where each pixel was."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from planted import photos as photographs

from feedline.pipelines.photos import Photo, Photos, scan


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Photos:
    """Three sizes of odd and even sides, wide and tall; one is smaller than 224."""
    root = tmp_path_factory.mktemp("photographs")
    for name, (width, height) in {
        "wide": (331, 250),
        "tall": (240, 320),
        "small": (203, 150),
    }.items():
        photographs.write(root / name, width, height, 1)
    return scan(root)


@pytest.fixture(scope="session")
def image(photos: Photos) -> Image.Image:
    return Image.open(photos.photos[-1].path).convert("RGB")


def colored_by_place(path: Path, side: int) -> Photo:
    """Red = column, green = row."""
    rows, columns = np.mgrid[0:side, 0:side]
    Image.fromarray(np.stack([columns, rows, 0 * rows], axis=-1).astype(np.uint8)).save(path)
    return Photo(str(path), 0, path.stat().st_size, "PNG", side, side, "RGB")


@pytest.fixture(scope="session")
def map_photo(tmp_path_factory: pytest.TempPathFactory) -> Photo:
    """256 x 256 pixels."""
    return colored_by_place(tmp_path_factory.mktemp("map") / "large.png", 256)


@pytest.fixture(scope="session")
def small_map(tmp_path_factory: pytest.TempPathFactory) -> Photo:
    """32 x 32 pixels."""
    return colored_by_place(tmp_path_factory.mktemp("map") / "small.png", 32)
