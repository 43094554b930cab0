"""The data that the trainings read: real photographs (crops of those that scikit-image ships) in
several formats, arrays, a memory map.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import webdataset
from PIL import Image
from skimage import data

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
TILE = 300


def of(kind: str, cache: Path) -> Path:
    """The folder with files of this kind, one of ``KINDS``. Made once for each cache."""
    folder = cache / kind
    if not folder.exists():
        unfinished = cache / f"{kind}.part"
        unfinished.mkdir(parents=True, exist_ok=True)
        KINDS[kind](unfinished)
        unfinished.rename(folder)
    return folder


def evict(folder: Path) -> None:
    """Take its files out of the page cache: the next read of each comes from the disk."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # what is not on the disk yet stays
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def photographs(width: int, height: int, count: int) -> Iterator[Image.Image]:
    """Mosaics of crops, which decode at the cost of a photograph of this size."""
    sources, dice = [getattr(data, name)() for name in PHOTOGRAPHS], np.random.default_rng(0)
    for _ in range(count):
        canvas = np.empty((height, width, 3), np.uint8)
        for top in range(0, height, TILE):
            for left in range(0, width, TILE):
                tile = canvas[top : top + TILE, left : left + TILE]
                source = sources[dice.integers(len(sources))]
                down, right = (
                    int(dice.integers(have - need + 1))
                    for have, need in zip(source.shape, tile.shape[:2], strict=False)
                )
                tile[:] = source[down : down + tile.shape[0], right : right + tile.shape[1]]
        yield Image.fromarray(canvas)


def images(
    width: int, height: int, count: int, ending: str = "jpg", **options: object
) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for number, image in enumerate(photographs(width, height, count)):
            image.save(folder / f"{number:04d}.{ending}", **options)

    return make


def mixed(folder: Path) -> None:
    """One photograph in 24 has 150 times the pixels of the others."""
    small, large = photographs(320, 240, 46), photographs(4000, 3000, 2)
    for number in range(48):
        next(large if number % 24 == 7 else small).save(folder / f"{number:04d}.jpg", quality=90)


def videos(folder: Path) -> None:
    """Motion JPEG, every frame of which is a JPEG."""
    frames = [np.asarray(image)[:, :, ::-1] for image in photographs(640, 400, 8)]
    for number in range(4):
        film = cv2.VideoWriter(
            str(folder / f"{number}.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 25, (640, 400)
        )
        for frame in frames:
            film.write(np.ascontiguousarray(frame))
        film.release()


def pieces(folder: Path) -> None:
    for number in range(8000):
        np.save(folder / f"{number:05d}.npy", np.full(500, number, np.float32))


def packed(folder: Path) -> None:
    np.save(folder / "all.npy", np.arange(8000, dtype=np.float32)[:, None].repeat(500, 1))


def arrays(folder: Path) -> None:
    dice = np.random.default_rng(0)
    for number in range(320):
        np.save(folder / f"{number:03d}.npy", dice.integers(0, 256, 2 << 20, np.uint8))


def memory_map(folder: Path) -> None:
    with open(folder / "map", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 24))


def archives(count: int, samples: int = 1600) -> Callable[[Path], None]:
    """Samples as files of JSON in so many tar archives."""

    def make(folder: Path) -> None:
        for archive in range(count):
            with webdataset.TarWriter(str(folder / f"{archive:02d}.tar")) as tar:
                for number in range(archive, samples, count):
                    values = [(number * k) % 9973 for k in range(256)]
                    tar.write({"__key__": f"{number:06d}", "json": {"values": values}})

    return make


KINDS: dict[str, Callable[[Path], None]] = {
    "small": images(96, 80, 48),
    "usual": images(480, 360, 48),
    "large": images(960, 800, 16),
    "huge": images(1500, 1200, 12),
    "png": images(640, 480, 12, "png"),
    "webp": images(640, 480, 12, "webp", quality=90),
    "jpeg2000": images(320, 240, 12, "jp2"),
    "jpeg320": images(320, 240, 12, quality=90),
    "many": images(640, 480, 900, quality=95),
    "mixed": mixed,
    "videos": videos,
    "pieces": pieces,
    "packed": packed,
    "arrays": arrays,
    "map": memory_map,
    "tars": archives(8),
    "tar": archives(1),
}
