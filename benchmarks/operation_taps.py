"""What the taps inside a sample cost: per call while nobody looks, per span in a sample that is looked at, and per JPEG sample.

    python benchmarks/operation_taps.py

With and without taps take turns, so that a machine that gets slower in between does not decide. Prints minimum and median over the turns.
"""

import functools
import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image, ImageFile
from torchvision import transforms

from feedline.profiler.record.detail import detail
from feedline.profiler.taps import operations
from feedline.profiler.taps.operations.span import collect

TURNS = 40
TINY = np.zeros((1, 1), np.uint8)


class Nothing(transforms.CenterCrop):
    """A transform without work, so that the wrapper's share is large enough to be measured."""

    def forward(self, img: Any) -> Any:
        return img


def untapped() -> Callable[[], None]:
    return lambda: None


def tapped() -> Callable[[], None]:
    return operations.attach(lambda *_: None)


def per_call(call: Callable[[], Any], calls: int) -> float:
    for _ in range(calls // 10):  # the interpreter adapts to what was attached
        call()
    torch.manual_seed(0)
    start = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - start) / calls


def compare(
    name: str, make: Callable[[], Callable[[], Any]], calls: int, write: Any = None
) -> None:
    """Cost in CPU nanoseconds per call, without and with taps;

    ``write``: in a sample that is looked at.
    """
    with_taps, without = [], []
    for _ in range(TURNS):
        for attach, costs in ((untapped, without), (tapped, with_taps)):
            undo = attach()
            detail.write = write
            costs.append(per_call(make(), calls))
            detail.write = None
            undo()
    more = [after - before for before, after in zip(without, with_taps, strict=True)]
    least = min(with_taps) - min(without)
    print(
        f"{name:52s} {min(without):11,.0f} ns   taps {least:+,.0f} ns (median of differences "
        f"{statistics.median(more):+,.0f})"
    )


def jpeg_sample() -> Callable[[], Any]:
    """A JPEG through the usual transforms; a small one: its calls are those of a large one, and
    what they add is not lost in it.
    """
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(8),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    return lambda: chain(Image.open(file).convert("RGB"))


def loaded_image() -> Callable[[], Any]:
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "PNG")
    image: ImageFile.ImageFile = Image.open(file)
    image.load()
    return lambda: image.load()


def forget(*fields: Any) -> None:
    pass


def main() -> None:
    torch.set_num_threads(1)
    print("nobody looks (15 of 16 samples)")
    compare("a loaded image's load()", loaded_image, 20_000)
    compare("cv2.flip", lambda: functools.partial(cv2.flip, TINY, 1), 20_000)
    compare("an nn.Module transform", lambda: functools.partial(Nothing(1), TINY), 20_000)
    compare("a small JPEG with four transforms", jpeg_sample, 500)
    print("looked at, by somebody who forgets at once")
    compare("cv2.flip: one span", lambda: functools.partial(cv2.flip, TINY, 1), 2_000, forget)
    compare("a small JPEG with four transforms", jpeg_sample, 500, forget)
    undo = tapped()
    print(f"  it writes {len(collect(jpeg_sample()))} spans")
    undo()


if __name__ == "__main__":
    main()
