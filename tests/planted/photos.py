"""Small sets of real JPEG photographs, cropped from those that scikit-image ships."""

from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")


def write(folder: Path, width: int, height: int, count: int, quality: int = 90) -> Path:
    """Write ``count`` photographs of this size.

    Large ones are mosaics of crops, which decode at the cost of a real one.
    """
    folder.mkdir(parents=True)
    photographs = [getattr(data, name)() for name in PHOTOGRAPHS]
    rng = np.random.default_rng(0)
    for number in range(count):
        canvas = np.empty((height, width, 3), np.uint8)
        for top in range(0, height, 400):
            for left in range(0, width, 400):
                tile = canvas[top : top + 400, left : left + 400]
                tile[:] = _crop(photographs[rng.integers(len(photographs))], *tile.shape[:2], rng)
        Image.fromarray(canvas).save(folder / f"{number:03d}.jpg", quality=quality)
    return folder


def _crop(photograph: np.ndarray, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A random part; a photograph that is too small is scaled up to fit."""
    scale = max(height / photograph.shape[0], width / photograph.shape[1], 1.0)
    if scale > 1:
        size = (
            int(np.ceil(photograph.shape[1] * scale)),
            int(np.ceil(photograph.shape[0] * scale)),
        )
        photograph = np.asarray(Image.fromarray(photograph).resize(size))
    top = int(rng.integers(photograph.shape[0] - height + 1))
    left = int(rng.integers(photograph.shape[1] - width + 1))
    return photograph[top : top + height, left : left + width]
