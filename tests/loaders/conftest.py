"""A small folder of images, and every loader that runs here."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from feedline.pipelines.loaders import LOADERS
from feedline.pipelines.loaders.protocol import LoaderKind, LoaderSettings, LoadTask
from feedline.pipelines.photos import Photos, scan
from feedline.pipelines.translate.recipe import read_recipe
from feedline.profiler.samplers.processes import descendants

RUNNING = [kind for kind in LOADERS if kind.refuses("cpu") is None]
COUNT = 23  # not a multiple of the batch size, nor of the number of ranks


def picture(number: int) -> Image.Image:
    """A smooth image, unlike its mirror image and unlike that of any other number."""
    height, width = 90 + number % 5, 120 + number % 7
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 1.6 + 2 * number, y * 2.0 + number, 120 + 60 * np.sin((x + y) / 9 + number)]
    return Image.fromarray(np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        place = root / f"class-{number % 3}"
        place.mkdir(exist_ok=True)
        if number in (4, 11):
            picture(number).save(place / f"{number:02}.png")
        else:
            picture(number).save(place / f"{number:02}.jpg", quality=95)
    return root


@pytest.fixture(scope="session")
def photos(folder) -> Photos:
    return scan(folder)


@pytest.fixture(scope="session")
def transform():
    from torchvision import transforms as T

    crop = [T.RandomResizedCrop(48, scale=(0.5, 1.0)), T.RandomHorizontalFlip()]
    return T.Compose([*crop, T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))])


@pytest.fixture
def task(photos, transform) -> LoadTask:
    return LoadTask(
        photos, read_recipe(transform), LoaderSettings(batch_size=4, workers=1), transform
    )


@pytest.fixture
def loader_of():
    """Makes loaders of (kind, task, changed settings); all are closed at the end of the test."""
    made = []

    def make(kind: LoaderKind | Callable, task: LoadTask, **settings):
        loader = (kind.make if isinstance(kind, LoaderKind) else kind)(
            replace(task, settings=replace(task.settings, **settings))
        )
        made.append(loader)
        return loader

    yield make
    for loader in made:
        loader.close()


def indices(loader, epoch: int = 0) -> list[list[int]]:
    """The samples of an epoch, batch by batch."""
    return [batch.index.tolist() for batch in loader.epoch(epoch)]


def left_behind(threads: set, processes: set[int], patience_s: float = 10.0) -> list[str]:
    """Threads and processes that are there still, after some patience."""
    until = time.monotonic() + patience_s
    while True:
        left = [thread.name for thread in threading.enumerate() if thread not in threads]
        left += [f"process {pid}" for pid in descendants(os.getpid()) if pid not in processes]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def grey(images: torch.Tensor) -> torch.Tensor:
    return images * torch.tensor((0.2, 0.3, 0.25)).view(-1, 1, 1) + torch.tensor(
        (0.5, 0.4, 0.3)
    ).view(-1, 1, 1)
