"""Fixtures of the tests of the taps inside a sample."""

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile  # noqa: F401  # both are there for every test

from feedline.profiler.taps import operations
from feedline.profiler.taps.operations.span import collect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "shims"))
import torchvision_without_ops  # noqa: E402, F401  # torchvision can be imported where its compiled operators do not load

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # importing it would ask PyPI for a newer version

NOISE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)


@pytest.fixture(autouse=True)
def no_tap_is_left_behind() -> Iterator[None]:
    """As for all other tests, but holding ids: a function that somebody holds is not replaced."""
    before = {
        name: id(functools.reduce(getattr, name.split("."), sys.modules["PIL"]))
        for name in ("Image.open", "ImageFile.ImageFile.load")
    }
    yield
    assert before == {
        name: id(functools.reduce(getattr, name.split("."), sys.modules["PIL"])) for name in before
    }


@pytest.fixture
def taps() -> Iterator[dict[str, tuple[bool, str]]]:
    """Attached taps; hook -> (attached, what it gives or why not)."""
    said: dict[str, tuple[bool, str]] = {}
    undo = operations.attach(lambda name, attached, why: said.update({name: (attached, why)}))
    yield said
    undo()


@pytest.fixture
def spans(taps: object) -> Callable[[Callable[[], Any]], list[Any]]:
    """Calls a function with the taps attached, and gives the spans that it wrote."""
    return collect


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    """A picture of 64 x 48 pixels in any of PIL's formats."""

    def encode(kind: str, mode: str = "RGB", **options: Any) -> bytes:
        file = io.BytesIO()
        Image.fromarray(NOISE).convert(mode).save(file, kind, **options)
        return file.getvalue()

    return encode


class SlowFile(io.BytesIO):
    """Bytes whose every read takes a while."""

    delay_s = 0.005
    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        time.sleep(self.delay_s)
        return super().read(size)
