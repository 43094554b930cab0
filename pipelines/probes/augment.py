"""Cost of each operation of the user's transforms in each library, on images in the state in which the operation receives them.

Random operations draw new numbers for every image, as in a training, so that their cost is a mean. Before that, each is done once with its
parameters fixed and compared with torchvision on PIL images: what gives another picture is not measured.
"""

import random
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from feedline.pipelines.probes.backends import BACKENDS, Apply, Backend, array
from feedline.pipelines.probes.measure import Refused, Work, ceiling, in_turns, one_core, reason
from feedline.pipelines.probes.subject import Subject
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.operations import Operation, Unknown
from feedline.pipelines.translate.recipe import Recipe
from feedline.profiler.ceilings import Ceiling

_IMAGES = 16  # all are held decoded, once for every library
_CHECKED = 6
# Gray levels (0 to 255), mean of these images with the same parameters. Libraries interpolate differently, by up to about five on sharp
# images, and equalizing a nearly black one makes more of that; another crop or another operation is tens away.
_LARGEST_MEAN_DIFFERENCE = 12.0


def probe(subject: Subject) -> Iterator[Ceiling]:
    """A ceiling for each operation and library, and for the whole recipe in each library; samples/s on one core, or on one GPU."""
    if not subject.images or subject.recipe is None:
        yield ceiling("augment", "no transforms given: use --data DIR --transforms MODULE:NAME")
        return
    images = [photo.decoded() for photo in subject.images[:_IMAGES]]
    done: list[Operation] = []
    for operation in subject.recipe.images:
        if isinstance(operation, Unknown):
            yield ceiling(f"augment/{operation.what}", f"cannot be translated: {operation.why}", per="core")
            continue
        yield from _operation(operation, _after(done, images), subject)
        done.append(operation)
    yield from _whole(subject.recipe, images, subject)


def _after(done: Sequence[Operation], images: Sequence[Any]) -> list[Any]:
    """The images after some operations, the same in every library: by torchvision on PIL images."""
    return list(BACKENDS[0].make(done)(images))


def _operation(operation: Operation, images: list[Any], subject: Subject) -> Iterator[Ceiling]:
    works: dict[str, Work | str] = {}
    with one_core():
        for backend in BACKENDS:
            try:
                given = [backend.takes(image) for image in images]
                apply = backend.make([operation])
                _check(operation, backend, images, given)
                works[backend.name] = Work(_pass(apply, given))
            except Exception as error:
                works[backend.name] = reason(error)
        found = in_turns({name: work for name, work in works.items() if isinstance(work, Work)}, subject.plan)
    for backend in BACKENDS:
        work = works[backend.name]
        yield ceiling(
            f"augment/{operation.name} {backend.name}",
            work if isinstance(work, str) else found[backend.name],
            per=backend.per,
            source=f"{len(images)} of the user's images, as they are before this operation; pixels compared with torchvision's on PIL",
            settings={"operation": operation.name, "backend": backend.name},
        )


def _check(operation: Operation, backend: Backend, images: list[Any], given: list[Any]) -> None:
    """The operation with its parameters fixed, on some images, against torchvision on PIL images.

    Raises:
        Refused: another shape, or another picture.
    """
    differences = []
    for image, same in list(zip(images, given))[:_CHECKED]:
        fixed = draw(operation, random.Random(0), (image.height, image.width), always=True)
        [left] = map(array, backend.make(fixed)([same]))
        [right] = map(array, BACKENDS[0].make(fixed)([image]))
        if left.shape != right.shape:
            raise Refused(f"gives images of shape {left.shape}, torchvision on PIL images of {right.shape}")
        differences.append(float(np.abs(left - right).mean()))
    if (mean := statistics.fmean(differences)) > _LARGEST_MEAN_DIFFERENCE:
        raise Refused(f"differs from torchvision on PIL images by {mean:.1f} gray levels on average")


def _whole(recipe: Recipe, images: list[Any], subject: Subject) -> Iterator[Ceiling]:
    """All operations in order; the user's own transform beside it."""
    works: dict[str, Work | str] = {}
    with one_core():
        for backend in BACKENDS:
            try:
                given = [backend.takes(image) for image in images]
                works[backend.name] = Work(_pass(backend.whole(recipe), given))
            except Exception as error:
                works[backend.name] = reason(error)
        if subject.transform is not None:
            works["own transform"] = Work(_pass(partial(map, subject.transform), images))
        found = in_turns({name: work for name, work in works.items() if isinstance(work, Work)}, subject.plan)
    kinds = {backend.name: backend for backend in BACKENDS}
    left_out = [unknown.what for unknown in recipe.unknown]
    for name, work in works.items():
        kind = kinds.get(name)
        yield ceiling(
            f"augment/all {name}",
            work if isinstance(work, str) else found[name],
            per=kind.per if kind else "core",
            source=f"{len(images)} of the user's images, decoded before",
            settings={"operation": "all", "backend": name, "gives": kind.gives, "left_out": left_out} if kind else {"operation": "all"},
        )


def _pass(apply: Apply, images: list[Any]) -> Any:
    def run() -> int:
        deque(apply(images), maxlen=0)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return len(images)

    return run
