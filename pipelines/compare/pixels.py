"""Compares the images of two loaders, with every random parameter of the user's recipe fixed."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from feedline.pipelines.compare.parts import made
from feedline.pipelines.compare.result import Pixels
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.translate.operations import Erase
from feedline.pipelines.translate.recipe import Recipe, frozen

_IMAGES = 48
#: Bounds in gray levels. Decoders differ by 1 or 2 levels where chroma is upsampled, antialiased resizes by less than 1 on average; an
#: image that is mirrored, shifted by a pixel or of swapped channels is off by 5 and more on average.
_MEAN_BOUND, _IMAGE_BOUND = 1.5, 3.0

Images = dict[int, torch.Tensor]


def frozen_task(task: Task) -> Task:
    """Some photos, spread over the dataset, with the recipe fixed. Erasing with noise is left out, because noise never repeats."""
    photos = task.photos.photos
    chosen = [photos[number * len(photos) // _IMAGES] for number in range(_IMAGES)] if len(photos) > _IMAGES else list(photos)
    recipe = frozen(task.recipe, task.settings.seed)
    steady = [one for one in recipe.operations if not (isinstance(one, Erase) and one.value is None)]
    fixed = Recipe(tuple(steady), recipe.mean, recipe.std)
    return replace(task, photos=replace(task.photos, photos=chosen), recipe=fixed, transform=None)


def images_of(kind: LoaderKind, task: Task) -> Images:
    """Index -> gray levels, float32 [3, h, w] on the CPU, 0 to 255."""
    images: Images = {}
    with made(kind, task) as loader:
        for batch in loader.epoch(0):
            gray = _grey_levels(batch.images.float().cpu(), task.recipe)
            images.update(zip(batch.index.tolist(), gray, strict=True))
    return images


def _grey_levels(images: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Undo the normalisation.

    Args:
        images: float32 [n, 3, h, w].
    """
    if recipe.mean is not None and recipe.std is not None:
        images = images * torch.tensor(recipe.std).view(-1, 1, 1) + torch.tensor(recipe.mean).view(-1, 1, 1)
    return images * 255


def compare_images(found: Images, reference: Images) -> Pixels:
    """Differences by index."""
    if found.keys() != reference.keys():
        return Pixels(len(found), 0.0, 0.0, 0.0, f"{len(found)} images came, not {len(reference)}")
    shapes = next(((found[at].shape, reference[at].shape) for at in found if found[at].shape != reference[at].shape), None)
    if shapes:
        return Pixels(len(found), 0.0, 0.0, 0.0, f"images are {_size(shapes[0])}, not {_size(shapes[1])}")
    means, largest = [], 0.0
    for at, image in found.items():
        difference = (image - reference[at]).abs()
        means.append(float(difference.mean()))
        largest = max(largest, float(difference.max()))
    return Pixels(len(found), sum(means) / len(means), max(means), largest, outside(means))


def outside(means: Sequence[float]) -> str:
    """Why images with these mean differences are not equal; empty if they are. A NaN is a difference."""
    mean = sum(means) / len(means)
    if not mean <= _MEAN_BOUND:
        return f"{mean:.2f} gray levels on average, more than {_MEAN_BOUND}"
    if not max(means) <= _IMAGE_BOUND:
        return f"one image is off by {max(means):.2f} gray levels on average, more than {_IMAGE_BOUND}"
    return ""


def _size(shape: torch.Size) -> str:
    return " x ".join(map(str, shape))
