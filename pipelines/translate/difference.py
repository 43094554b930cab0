"""Differences between the translations and torchvision, operation by operation."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feedline.pipelines.photos import Photo, Photos
from feedline.pipelines.translate import to_albumentations, to_dali, to_torchvision
from feedline.pipelines.translate.image_operations import distinct_names
from feedline.pipelines.translate.recipe import Recipe, Translation, freeze_recipe
from feedline.profiler.errors import MissingDependency

_PARAMETERS_SEED = 7  # any: it only has to be the same for all libraries
_DECODING, WHOLE_RECIPE = "decoding", "whole recipe"
_Images = list[NDArray[np.float32]]


@dataclass(frozen=True)
class LibraryDifference:
    """One operation in one library, against torchvision on PIL images with the same parameters.

    Attributes:
        operation: its name, numbered where an earlier one has the same; ``decoding`` alone, in
            libraries that decode; ``whole recipe`` for all of them in order.
        mean, max: absolute difference of all values of all images, in gray levels (0 to 255); None:
            it cannot be done; infinite: another size.
        message: why it cannot be done, or what is different on purpose; empty: nothing to say.
    """

    operation: str
    backend: str
    mean: float | None
    max: float | None
    message: str = ""


def compare_libraries(recipe: Recipe, photos: Photos, sample: int) -> list[LibraryDifference]:
    """Compare every library with torchvision, random parameters fixed.

    Every operation is applied alone to the decoded image; then the whole recipe, without what the
    library cannot do (nor does the reference then). Erasing and normalising are arithmetic on the
    finished tensor and left out. A library that is not installed has one row that says so.

    Args:
        recipe: the user's.
        photos: the dataset.
        sample: number of images, spread over the dataset.
    """
    chosen = random.Random(_PARAMETERS_SEED).sample(photos.photos, min(sample, len(photos)))
    parts = [
        (name, Recipe((operation,)))
        for name, operation in zip(distinct_names(recipe.images), recipe.images, strict=True)
    ]
    parts.append((WHOLE_RECIPE, Recipe(tuple(recipe.images))))
    rows: list[LibraryDifference] = []
    for backend in _COMPARED_LIBRARIES:
        try:
            backend.build(Recipe(()))
        except MissingDependency as error:
            rows.append(LibraryDifference(WHOLE_RECIPE, backend.name, None, None, str(error)))
            continue
        decoding = [(_DECODING, Recipe(()))] if backend.decodes else []
        rows += [
            _compare_operation(backend, name, part, chosen) for name, part in [*decoding, *parts]
        ]
    return rows


@dataclass(frozen=True)
class _ComparedLibrary:
    """A library to compare.

    Attributes:
        run: what an ``apply`` makes of files, as uint8-valued float32 [3, h, w].
        decodes: whether decoding is its own; the others get Pillow's.
    """

    name: str
    build: Callable[[Recipe], Translation]
    run: Callable[[Translation, Sequence[Photo]], _Images]
    decodes: bool = False


def _compare_operation(
    backend: _ComparedLibrary, name: str, recipe: Recipe, photos: Sequence[Photo]
) -> LibraryDifference:
    """Return one row, for a recipe without erasing."""
    built = backend.build(recipe)
    message = "; ".join(
        [
            *built.missing,
            *built.differs,
            *(f"the reference: {how}" for how in to_torchvision.pillow_differs(built.does)),
        ]
    )
    if name not in (_DECODING, WHOLE_RECIPE) and built.missing:
        return LibraryDifference(name, backend.name, None, None, message)
    fixed = freeze_recipe(replace(built.does, mean=None, std=None), _PARAMETERS_SEED)
    mean, largest = _mean_and_largest(
        backend.run(backend.build(fixed), photos),
        _on_pillow(to_torchvision.build_v1(fixed), photos),
    )
    return LibraryDifference(name, backend.name, mean, largest, message)


def _mean_and_largest(ours: _Images, theirs: _Images) -> tuple[float, float]:
    """Return the mean and largest absolute difference; infinite if sizes differ.

    Args:
        ours: float32 [3, h, w] each, in gray levels.
        theirs: likewise.
    """
    if any(our.shape != their.shape for our, their in zip(ours, theirs, strict=True)):
        return float("inf"), float("inf")
    gaps = [np.abs(our - their) for our, their in zip(ours, theirs, strict=True)]
    total = sum(float(gap.sum(dtype=np.float64)) for gap in gaps)
    return total / sum(gap.size for gap in gaps), max(float(gap.max()) for gap in gaps)


def _on_pillow(built: Translation, photos: Sequence[Photo]) -> _Images:
    return [
        np.round(built.apply(photo.decoded()).numpy() * 255).astype(np.float32) for photo in photos
    ]


def _on_v2(built: Translation, photos: Sequence[Photo]) -> _Images:
    import torch

    tensors = [torch.from_numpy(np.array(photo.decoded())).permute(2, 0, 1) for photo in photos]
    return [built.apply(tensor).numpy().astype(np.float32) for tensor in tensors]


def _on_arrays(built: Translation, photos: Sequence[Photo]) -> _Images:
    return [
        built.apply(np.array(photo.decoded())).transpose(2, 0, 1).astype(np.float32)
        for photo in photos
    ]


def _on_dali_cpu(built: Translation, photos: Sequence[Photo]) -> _Images:
    return _in_pipeline(built, photos, None)


def _on_dali_gpu(built: Translation, photos: Sequence[Photo]) -> _Images:
    return _in_pipeline(built, photos, 0)


def _in_pipeline(built: Translation, photos: Sequence[Photo], device_id: int | None) -> _Images:
    """Run a DALI pipeline once over the files, as one batch."""
    from nvidia.dali import Pipeline, fn

    files = [np.frombuffer(Path(photo.path).read_bytes(), dtype=np.uint8) for photo in photos]
    pipeline = Pipeline(
        batch_size=len(files),
        num_threads=2,
        device_id=device_id,
        seed=_PARAMETERS_SEED,
        prefetch_queue_depth=1,
    )
    with pipeline:
        pipeline.set_outputs(built.apply(fn.external_source(lambda: files, device="cpu")))
    pipeline.build()
    (images,) = pipeline.run()
    images = images if device_id is None else images.as_cpu()
    return [
        np.array(images.at(number)).transpose(2, 0, 1).astype(np.float32)
        for number in range(len(files))
    ]


def _dali_on_a_gpu(recipe: Recipe) -> Translation:
    """Translate to DALI on a GPU.

    Raises:
        MissingDependency: there is no GPU, or no DALI.
    """
    import torch

    if not torch.cuda.is_available():
        raise MissingDependency(
            "DALI with mixed decoding needs a CUDA device, and torch sees none: compare on a "
            "machine that has one"
        )
    return to_dali.build_dali(recipe, "mixed")


_COMPARED_LIBRARIES = [
    _ComparedLibrary("v2", to_torchvision.build_v2, _on_v2),
    _ComparedLibrary("albumentations", to_albumentations.build_albumentations, _on_arrays),
    _ComparedLibrary(
        "DALI CPU", lambda recipe: to_dali.build_dali(recipe, "cpu"), _on_dali_cpu, decodes=True
    ),
    _ComparedLibrary("DALI GPU", _dali_on_a_gpu, _on_dali_gpu, decodes=True),
]
