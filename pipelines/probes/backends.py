"""Libraries that transform images: each takes one type of image, and performs operations of the user's recipe on it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from feedline.pipelines.probes import dali_images
from feedline.pipelines.probes.measure import Refused, see_gpu
from feedline.pipelines.translate import albumentations, pillow
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.operations import Operation, Tone, Unknown
from feedline.pipelines.translate.recipe import Recipe
from feedline.pipelines.translate.torchvision_calls import perform
from feedline.pipelines.translate.transform_rng import TransformRng

Apply = Callable[[Sequence[Any]], Iterable[Any]]  # images -> the images changed, one by one


@dataclass(frozen=True)
class Backend:
    """Attributes:
    takes: a PIL image -> the kind of image that it works on.
    make: makes a function that does some operations one after the other: images -> images of the same kind. Raises Refused or
        MissingDependency.
    gives: the kind of number of its images.
    finish: whether a loader with it normalises every image itself, rather than a batch on the device.
    """

    name: str
    takes: Callable[[Any], Any]
    make: Callable[[Sequence[Operation]], Apply]
    gives: str
    per: str = "core"
    finish: bool = False

    def whole(self, recipe: Recipe) -> Apply:
        """The whole recipe, up to the output of a loader's worker."""
        if not self.finish:
            return self.make([one for one in recipe.images if not isinstance(one, Unknown)])
        return partial(map, pillow.build(recipe).apply)


def array(image: Any) -> "np.ndarray[Any, Any]":
    """The result of a backend as float32 [h, w, 3], 0 to 255."""
    if isinstance(image, torch.Tensor):
        scale = 255.0 if image.is_floating_point() else 1.0
        return (image.float() * scale).permute(1, 2, 0).cpu().numpy()
    return np.asarray(image.as_cpu() if hasattr(image, "as_cpu") else image).astype(np.float32)


def _tensor(image: Any) -> torch.Tensor:
    """A PIL image as uint8 [3, h, w]."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _functional(module: Callable[[], ModuleType]) -> Callable[[Sequence[Operation]], Apply]:
    """Operations through a functional module of torchvision, whatever kind of image it is given."""

    def make(operations: Sequence[Operation]) -> Apply:
        functional, dice = module(), TransformRng(0)

        def change(image: Any) -> Any:
            for operation in operations:
                size = _size(image)
                for fixed in draw(operation, dice.here(), size):
                    if not isinstance(fixed, Unknown):
                        of_image = _in_units_of_one(fixed) if isinstance(image, torch.Tensor) and image.is_floating_point() else fixed
                        image = perform(functional, image, of_image, _size(image))
            return image

        return partial(map, change)

    return make


def _size(image: Any) -> tuple[int, int]:
    return (image.height, image.width) if hasattr(image, "height") else (image.shape[-2], image.shape[-1])


def _in_units_of_one(operation: Operation) -> Operation:
    """The operation for an image of 0 to 1; fills and thresholds are given in gray levels."""
    if isinstance(operation, Tone) and operation.kind == "solarize":
        return replace(operation, magnitude=operation.magnitude / 255)
    fill = getattr(operation, "fill", None)
    return operation if fill is None else replace(operation, fill=tuple(level / 255 for level in fill))  # type: ignore[call-arg]


def _on_arrays(operations: Sequence[Operation]) -> Apply:
    built = albumentations.build(Recipe(tuple(operations)))
    if built.missing:
        raise Refused("; ".join(built.missing))
    return partial(map, built.apply)


def _v1() -> ModuleType:
    from torchvision.transforms import functional

    return functional


def _v2() -> ModuleType:
    from torchvision.transforms.v2 import functional

    return functional


def _on_gpu(image: Any) -> torch.Tensor:
    see_gpu()
    return _tensor(image).cuda()


BACKENDS = [  # the first is the reference that the others' images are compared with
    Backend("v1 PIL", lambda image: image, _functional(_v1), "float32", finish=True),
    Backend("v2 uint8", _tensor, _functional(_v2), "uint8"),
    Backend("v2 float32", lambda image: _tensor(image).float().div_(255), _functional(_v2), "float32"),
    Backend("albumentations", np.array, _on_arrays, "uint8"),
    Backend("DALI CPU", np.array, partial(dali_images.make, device="cpu"), "uint8"),
    Backend("v2 GPU", _on_gpu, _functional(_v2), "uint8", "device"),
    Backend("DALI GPU", np.array, partial(dali_images.make, device="gpu"), "uint8", "device"),
]
