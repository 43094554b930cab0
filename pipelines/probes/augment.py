"""Cost of each operation of the user's transforms in each library.

Images are in the state in which the operation receives them. Random operations draw new numbers for
every image, as in a training, so that their cost is a mean. Before that, each is done once with its
parameters fixed and compared with torchvision on PIL images: what gives another picture is not
measured.
"""

import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from feedline.pipelines.libraries import load
from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    Subject,
    Workload,
    as_ceiling,
    error_reason,
    measure_in_turns,
    on_one_core,
    require_gpu,
)
from feedline.pipelines.random_states import TransformRng
from feedline.pipelines.translate import to_albumentations, to_dali, to_torchvision
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.image_operations import (
    ImageOperation,
    Tone,
    UnknownOperation,
    distinct_names,
)
from feedline.pipelines.translate.recipe import Recipe
from feedline.pipelines.translate.to_torchvision import perform_torchvision
from feedline.profiler.ceilings import Ceiling

_DALI_BATCH = 16
_MAX_IMAGES = 16  # all are held decoded, once for every library
_CHECKED_IMAGES = 6
# Gray levels (0 to 255), mean of these images with the same parameters. Libraries interpolate
# differently, by up to about five on sharp images, and equalizing a nearly black one makes more of
# that; another crop or another operation is tens away.
_MAX_LIBRARY_DIFFERENCE = 12.0


class _DaliChange:
    """DALI's operations on decoded images, in a pipeline with one thread.

    Call it with uint8 arrays [h, w, 3]; it gives DALI's tensors, one by one, on the pipeline's
    device.
    """

    def __init__(self, operations: Sequence[ImageOperation], device: str) -> None:
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali import types as dali_types

        from feedline.pipelines.translate.dali_calls import DaliImages, perform_dali

        types: Any = dali_types  # what its stubs leave out

        @pipeline_def
        def changing() -> Any:
            decoded = fn.external_source(
                name="images", dtype=types.UINT8, ndim=3, layout="HWC", no_copy=True
            )
            shape = decoded.shape()
            images = DaliImages(decoded if device == "cpu" else decoded.gpu(), shape[0], shape[1])
            for operation in operations:
                images = perform_dali(images, operation)
            return images.node

        device_id = None if device == "cpu" else 0
        self._pipeline = changing(
            batch_size=_DALI_BATCH,
            num_threads=1,
            device_id=device_id,
            prefetch_queue_depth=1,
            seed=0,
        )
        self._pipeline.build()

    def __call__(self, images: Sequence[Any]) -> Iterator[Any]:
        for at in range(0, len(images), _DALI_BATCH):
            batch = list(images[at : at + _DALI_BATCH])
            self._pipeline.feed_input("images", batch)
            (changed,) = self._pipeline.run()
            yield from (changed[number] for number in range(len(batch)))


def _make_dali(operations: Sequence[ImageOperation], device: str) -> _DaliChange:
    """Make a function of some operations, one after the other.

    Raises:
        CannotMeasure: DALI cannot do one of them, or has no GPU.
        MissingDependency: DALI is not installed.
    """
    load("nvidia.dali.fn")
    if device == "gpu":
        require_gpu()
    if refused := [
        f"{operation.name}: {why}"
        for operation in operations
        if (why := to_dali.dali_refuses(operation))
    ]:
        raise CannotMeasure("; ".join(refused))
    return _DaliChange(operations, device)


_Apply = Callable[[Sequence[Any]], Iterable[Any]]  # images -> the images changed, one by one


@dataclass(frozen=True)
class _TransformLibrary:
    """A library that transforms images of one type.

    Attributes:
        takes: a PIL image -> the kind of image that it works on.
        make: makes a function that does some operations one after the other: images -> images of
            the same kind. Raises CannotMeasure or MissingDependency.
        gives: the kind of number of its images.
        finish: whether a loader with it normalises every image itself, rather than a batch on the
            device.
    """

    name: str
    takes: Callable[[Any], Any]
    make: Callable[[Sequence[ImageOperation]], _Apply]
    gives: str
    per: str = "core"
    finish: bool = False

    def whole(self, recipe: Recipe) -> _Apply:
        """Make the whole recipe, up to the output of a loader's worker."""
        if not self.finish:
            return self.make(
                [
                    operation
                    for operation in recipe.images
                    if not isinstance(operation, UnknownOperation)
                ]
            )
        return partial(map, to_torchvision.build_v1(recipe).apply)


def _as_array(image: Any) -> "np.ndarray[Any, Any]":
    """Return the result of a library as float32 [h, w, 3], 0 to 255."""
    if isinstance(image, torch.Tensor):
        scale = 255.0 if image.is_floating_point() else 1.0
        return (image.float() * scale).permute(1, 2, 0).cpu().numpy()
    return np.asarray(image.as_cpu() if hasattr(image, "as_cpu") else image).astype(np.float32)


def _tensor(image: Any) -> torch.Tensor:
    """Return a PIL image as uint8 [3, h, w]."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _functional(module: Callable[[], ModuleType]) -> Callable[[Sequence[ImageOperation]], _Apply]:
    """Make operations through a functional module of torchvision.

    It takes whatever kind of image it is given.
    """

    def make(operations: Sequence[ImageOperation]) -> _Apply:
        functional, dice = module(), TransformRng(0)

        def change(image: Any) -> Any:
            for operation in operations:
                size = _size(image)
                for fixed in draw(operation, dice.here(), size):
                    if not isinstance(fixed, UnknownOperation):
                        of_image = (
                            _in_units_of_one(fixed)
                            if isinstance(image, torch.Tensor) and image.is_floating_point()
                            else fixed
                        )
                        image = perform_torchvision(functional, image, of_image, _size(image))
            return image

        return partial(map, change)

    return make


def _size(image: Any) -> tuple[int, int]:
    return (
        (image.height, image.width)
        if hasattr(image, "height")
        else (image.shape[-2], image.shape[-1])
    )


def _in_units_of_one(operation: ImageOperation) -> ImageOperation:
    """Return the operation for an image of 0 to 1.

    Fills and thresholds are given in gray levels.
    """
    if isinstance(operation, Tone) and operation.kind == "solarize":
        return replace(operation, magnitude=operation.magnitude / 255)
    fill = getattr(operation, "fill", None)
    if fill is None:
        return operation
    shares = tuple(level / 255 for level in fill)
    return replace(operation, fill=shares)  # type: ignore[call-arg]


def _on_arrays(operations: Sequence[ImageOperation]) -> _Apply:
    built = to_albumentations.build_albumentations(Recipe(tuple(operations)))
    if built.missing:
        raise CannotMeasure("; ".join(built.missing))
    return partial(map, built.apply)


def _v1() -> ModuleType:
    from torchvision.transforms import functional

    return functional


def _v2() -> ModuleType:
    from torchvision.transforms.v2 import functional

    return functional


def _on_gpu(image: Any) -> torch.Tensor:
    require_gpu()
    return _tensor(image).cuda()


_TRANSFORM_LIBRARIES = [  # the first is the reference that the others' images are compared with
    _TransformLibrary("v1 PIL", lambda image: image, _functional(_v1), "float32", finish=True),
    _TransformLibrary("v2 uint8", _tensor, _functional(_v2), "uint8"),
    _TransformLibrary(
        "v2 float32", lambda image: _tensor(image).float().div_(255), _functional(_v2), "float32"
    ),
    _TransformLibrary("albumentations", np.array, _on_arrays, "uint8"),
    _TransformLibrary("DALI CPU", np.array, partial(_make_dali, device="cpu"), "uint8"),
    _TransformLibrary("v2 GPU", _on_gpu, _functional(_v2), "uint8", "device"),
    _TransformLibrary("DALI GPU", np.array, partial(_make_dali, device="gpu"), "uint8", "device"),
]


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure each operation in each library, and the whole recipe in each library.

    In samples/s on one core, or on one GPU. An operation with the name of an earlier one has a
    number in its own.
    """
    if not subject.images or subject.recipe is None:
        yield as_ceiling("augment", "no transforms given: use --data DIR --transforms MODULE:NAME")
        return
    images = [photo.decoded() for photo in subject.images[:_MAX_IMAGES]]
    done: list[ImageOperation] = []
    operations = subject.recipe.images
    for name, operation in zip(distinct_names(operations), operations, strict=True):
        if isinstance(operation, UnknownOperation):
            yield as_ceiling(
                f"augment/{name}", f"cannot be translated: {operation.why}", per="core"
            )
            continue
        yield from _operation(name, operation, _after(done, images), subject)
        done.append(operation)
    yield from _whole(subject.recipe, images, subject)


def _after(done: Sequence[ImageOperation], images: Sequence[Any]) -> list[Any]:
    """Return the images after some operations, by torchvision on PIL images."""
    return list(_TRANSFORM_LIBRARIES[0].make(done)(images))


def _operation(
    name: str, operation: ImageOperation, images: list[Any], subject: Subject
) -> Iterator[Ceiling]:
    works: dict[str, Workload | str] = {}
    with on_one_core():
        for backend in _TRANSFORM_LIBRARIES:
            try:
                inputs = [backend.takes(image) for image in images]
                apply = backend.make([operation])
                _check(operation, backend, images, inputs)
                works[backend.name] = Workload(_pass(apply, inputs))
            except Exception as error:
                works[backend.name] = error_reason(error)
        rates = measure_in_turns(
            {name: work for name, work in works.items() if isinstance(work, Workload)}, subject.plan
        )
    for backend in _TRANSFORM_LIBRARIES:
        work = works[backend.name]
        yield as_ceiling(
            f"augment/{name} {backend.name}",
            work if isinstance(work, str) else rates[backend.name],
            per=backend.per,
            source=f"{len(images)} of the user's images, as they are before this operation; "
            f"pixels compared with torchvision's on PIL",
            settings={"operation": name, "backend": backend.name},
        )


def _check(
    operation: ImageOperation, backend: _TransformLibrary, images: list[Any], inputs: list[Any]
) -> None:
    """Compare the operation, its parameters fixed, with torchvision on PIL images.

    Raises:
        CannotMeasure: another shape, or another picture.
    """
    differences = []
    for image, same in list(zip(images, inputs))[:_CHECKED_IMAGES]:
        fixed = draw(operation, random.Random(0), (image.height, image.width), always=True)
        [left] = map(_as_array, backend.make(fixed)([same]))
        [right] = map(_as_array, _TRANSFORM_LIBRARIES[0].make(fixed)([image]))
        if left.shape != right.shape:
            raise CannotMeasure(
                f"gives images of shape {left.shape}, torchvision on PIL images of {right.shape}"
            )
        differences.append(float(np.abs(left - right).mean()))
    if (mean := statistics.fmean(differences)) > _MAX_LIBRARY_DIFFERENCE:
        raise CannotMeasure(
            f"differs from torchvision on PIL images by {mean:.1f} gray levels on average"
        )


def _whole(recipe: Recipe, images: list[Any], subject: Subject) -> Iterator[Ceiling]:
    """Measure all operations in order, and the user's own transform."""
    works: dict[str, Workload | str] = {}
    with on_one_core():
        for backend in _TRANSFORM_LIBRARIES:
            try:
                inputs = [backend.takes(image) for image in images]
                works[backend.name] = Workload(_pass(backend.whole(recipe), inputs))
            except Exception as error:
                works[backend.name] = error_reason(error)
        if subject.transform is not None:
            works["own transform"] = Workload(_pass(partial(map, subject.transform), images))
        rates = measure_in_turns(
            {name: work for name, work in works.items() if isinstance(work, Workload)}, subject.plan
        )
    kinds = {backend.name: backend for backend in _TRANSFORM_LIBRARIES}
    left_out = [unknown.what for unknown in recipe.unknown]
    for name, work in works.items():
        kind = kinds.get(name)
        yield as_ceiling(
            f"augment/all {name}",
            work if isinstance(work, str) else rates[name],
            per=kind.per if kind else "core",
            source=f"{len(images)} of the user's images, decoded before",
            settings={
                "operation": "all",
                "backend": name,
                "gives": kind.gives,
                "finishes": kind.finish,
                "left_out": left_out,
            }
            if kind
            else {"operation": "all"},
        )


def _pass(apply: _Apply, images: list[Any]) -> Any:
    def run() -> int:
        deque(apply(images), maxlen=0)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return len(images)

    return run
