"""Translations to torchvision: v1 on PIL images, the reference for all others, and v2 on tensors.

v2 takes single uint8 images in workers, or whole batches on a GPU. Both share one way to call a
functional module, and ``finish``, which turns uint8 images into the model's input on any device.
"""

import random
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from feedline.pipelines.libraries import load
from feedline.pipelines.random_states import TransformRng
from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.image_operations import (
    Erase,
    ImageOperation,
    RandomOperation,
    Size,
)
from feedline.pipelines.translate.recipe import Recipe, Translation, flatten_operations

if TYPE_CHECKING:
    from PIL.Image import Image

# Modes that torchvision has for PIL images only, and the nearest one it has for tensors.
_PILLOW_ONLY = {"lanczos": "bicubic", "box": "bilinear", "hamming": "bilinear"}


def perform_torchvision(
    functional: ModuleType, image: Any, operation: ImageOperation, size: Size
) -> Any:
    """Apply one operation.

    Args:
        functional: ``torchvision.transforms.functional`` or
            ``torchvision.transforms.v2.functional``.
        image: a PIL image, or a uint8 tensor [3, h, w] or [n, 3, h, w].
        operation: not random, not unknown, not Erase.
        size: (height, width) of the image.
    """
    return _CALLS[type(operation)](functional, image, operation, size)


def _mode(functional: ModuleType, word: str, image: Any) -> Any:
    if not hasattr(image, "shape"):
        return functional.InterpolationMode(word)
    word = _PILLOW_ONLY.get(word, word)
    return functional.InterpolationMode("nearest-exact" if word == "nearest" else word)


def _warp_mode(functional: ModuleType, word: str, image: Any) -> Any:
    if hasattr(image, "shape") and word not in ("nearest", "bilinear"):
        word = "bilinear"
    return functional.InterpolationMode(word)


def _resize(f: ModuleType, image: Any, operation: of.Resize, size: Size) -> Any:
    wanted = operation.result_size(size)
    if wanted == size:
        return image
    return f.resize(
        image, list(wanted), _mode(f, operation.interpolation, image), antialias=operation.antialias
    )


def _affine(f: ModuleType, image: Any, operation: of.Affine, size: Size) -> Any:
    return f.affine(
        image,
        angle=operation.angle,
        translate=[
            round(operation.translate[0] * size[1]),
            round(operation.translate[1] * size[0]),
        ],
        scale=operation.scale,
        shear=list(operation.shear),
        interpolation=_warp_mode(f, operation.interpolation, image),
        fill=list(operation.fill),
        center=None if operation.center is None else list(operation.center),
    )


def _rotate(f: ModuleType, image: Any, operation: of.Rotate, size: Size) -> Any:
    mode = _warp_mode(f, operation.interpolation, image)
    center = None if operation.center is None else list(operation.center)
    return f.rotate(image, operation.angle, mode, operation.expand, center, list(operation.fill))


def _tone(f: ModuleType, image: Any, operation: of.Tone, size: Size) -> Any:
    match operation.kind:
        case "posterize":
            return f.posterize(image, int(operation.magnitude))
        case "solarize":
            return f.solarize(image, operation.magnitude)
    return getattr(f, operation.kind)(image)


def _pad(f: ModuleType, image: Any, operation: of.Pad | of.PadToSize, size: Size) -> Any:
    padding = operation.padding if isinstance(operation, of.Pad) else operation.padding_for(size)
    fill = operation.fill[0] if len(operation.fill) == 1 else list(operation.fill)
    return f.pad(image, list(padding), fill, operation.mode) if any(padding) else image


def _grayscale(f: ModuleType, image: Any, operation: of.Grayscale, size: Size) -> Any:
    return f.rgb_to_grayscale(image, 3) if hasattr(image, "shape") else f.to_grayscale(image, 3)


_CALLS: dict[type[ImageOperation], Callable[[ModuleType, Any, Any, Size], Any]] = {
    of.Resize: _resize,
    of.CenterCrop: lambda f, image, operation, size: f.center_crop(image, list(operation.size)),
    of.Crop: lambda f, image, operation, size: f.crop(image, *operation.box(size)),
    of.Pad: _pad,
    of.PadToSize: _pad,
    of.Flip: lambda f, image, operation, size: (
        f.hflip(image) if operation.horizontal else f.vflip(image)
    ),
    of.Adjust: lambda f, image, operation, size: getattr(f, f"adjust_{operation.kind}")(
        image, operation.factor
    ),
    of.Grayscale: _grayscale,
    of.Blur: lambda f, image, operation, size: f.gaussian_blur(
        image, list(operation.kernel), [operation.sigma, operation.sigma]
    ),
    of.Affine: _affine,
    of.Rotate: _rotate,
    of.Tone: _tone,
}


_dice = random.Random()  # seeded by the system, and of this module alone


def finish(recipe: Recipe, images: torch.Tensor, dice: random.Random | None = None) -> torch.Tensor:
    """Scale to 0 to 1, normalise, erase.

    Args:
        recipe: the user's.
        images: uint8 [n, 3, h, w].
        dice: for RandomErasing; None: unseeded.

    Returns:
        float32 [n, 3, h, w] on the device of ``images``.
    """
    batch = images.to(torch.float32)
    erasing = recipe.erasing
    if any(not operation.normalised for operation in erasing):
        batch = _erase(recipe, batch.div_(255), dice or _dice, normalised=False)
        batch = _normalise(recipe, batch, largest=1.0)
    else:
        batch = _normalise(recipe, batch, largest=255.0)
    return _erase(recipe, batch, dice or _dice, normalised=True)


def _normalise(recipe: Recipe, batch: torch.Tensor, largest: float) -> torch.Tensor:
    """Subtract the mean and divide by the deviation, in place.

    Args:
        recipe: has both, or neither.
        batch: float32 [n, 3, h, w], 0 to ``largest``.
        largest: 1 or 255.
    """
    if recipe.mean is None or recipe.std is None:
        return batch.div_(largest) if largest != 1 else batch
    mean = torch.tensor(recipe.mean, device=batch.device).view(-1, 1, 1) * largest
    std = torch.tensor(recipe.std, device=batch.device).view(-1, 1, 1) * largest
    return batch.sub_(mean).div_(std)


def _erase(
    recipe: Recipe, batch: torch.Tensor, dice: random.Random, normalised: bool
) -> torch.Tensor:
    height, width = batch.shape[-2:]
    for operation in recipe.erasing:
        if operation.normalised != normalised:
            continue
        for image in batch:
            for fixed in draw(operation, dice, (height, width)):
                assert isinstance(fixed, Erase)
                _erase_one(image, fixed, dice)
    return batch


def _erase_one(image: torch.Tensor, erase: Erase, dice: random.Random) -> None:
    rows, columns = image.shape[-2:]
    top, left = round(erase.top * rows), round(erase.left * columns)
    hole = image[
        :, top : top + round(erase.height * rows), left : left + round(erase.width * columns)
    ]
    if erase.value is None:
        generator = torch.Generator().manual_seed(dice.getrandbits(63))
        hole.copy_(torch.randn(hole.shape, generator=generator))
    else:
        hole.copy_(torch.tensor(erase.value, device=image.device).view(-1, 1, 1))


class OnPillowImages:
    """Callable on a PIL RGB image; returns float32 [3, h, w], normalised.

    Threads may share it.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        """Keep the operations, and make a generator."""
        self.recipe = recipe
        self.operations: Sequence[ImageOperation] = recipe.images
        self.dice = TransformRng(seed)

    def __call__(self, image: "Image") -> torch.Tensor:
        """Do the whole recipe."""
        return finish(self.recipe, self.pixels(image)[None], self.dice.here())[0]

    def pixels(self, image: "Image") -> torch.Tensor:
        """Do the recipe up to uint8 [3, h, w]."""
        from torchvision.transforms import functional

        dice = self.dice.here()
        for operation in self.operations:
            for fixed in draw(operation, dice, (image.height, image.width)):
                image = perform_torchvision(functional, image, fixed, (image.height, image.width))
        return functional.pil_to_tensor(image)


def pillow_differs(recipe: Recipe) -> tuple[str, ...]:
    """List options that torchvision supports on tensors only."""
    notes = []
    for operation in flatten_operations(recipe.operations):
        if (
            isinstance(operation, (of.Resize, of.RandomResizedCrop))
            and not operation.antialias
            and operation.interpolation != "nearest"
        ):
            notes.append(
                f"{operation.name}: antialias=False works for tensors only; Pillow always "
                f"antialiases when it shrinks"
            )
    return tuple(notes)


def build_v1(recipe: Recipe, seed: int = 0) -> Translation:
    """Translate to torchvision v1 on PIL images.

    Args:
        recipe: the user's.
        seed: of the random operations; give every rank its own.

    Raises:
        MissingDependency: torchvision or Pillow is not installed.
    """
    load("torchvision", "PIL")
    does = recipe.known
    return Translation(OnPillowImages(does, seed), recipe.missing, pillow_differs(recipe), does)


class _OnTensors:
    """Callable on uint8 [3, h, w], or on a batch [n, 3, h, w]; returns uint8.

    The images of a batch draw their parameters separately.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.operations = recipe.images
        self.dice = TransformRng(seed)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        for operation in self.operations:
            if images.ndim == 4 and isinstance(operation, RandomOperation):
                images = self._each(functional, images, operation)
            else:
                images = self._all(functional, images, operation)
        return images

    def _all(
        self, functional: ModuleType, images: torch.Tensor, operation: ImageOperation
    ) -> torch.Tensor:
        for fixed in draw(operation, self.dice.here(), _tensor_size(images)):
            images = perform_torchvision(functional, images, fixed, _tensor_size(images))
        return images

    def _each(
        self, functional: ModuleType, images: torch.Tensor, operation: RandomOperation
    ) -> torch.Tensor:
        if isinstance(operation, (of.RandomHorizontalFlip, of.RandomVerticalFlip)):
            dice = self.dice.here()
            chosen = torch.tensor(
                [dice.random() < operation.p for _ in images], device=images.device
            )
            axis = -1 if isinstance(operation, of.RandomHorizontalFlip) else -2
            return torch.where(chosen.view(-1, 1, 1, 1), images.flip(axis), images)
        return torch.stack([self._all(functional, image, operation) for image in images])


def _tensor_size(images: torch.Tensor) -> tuple[int, int]:
    return images.shape[-2], images.shape[-1]


def _v2_differs(recipe: Recipe) -> tuple[str, ...]:
    """List interpolations that v2 supports for PIL images only."""
    notes = []
    for operation in flatten_operations(recipe.operations):
        word = getattr(operation, "interpolation", None)
        resizes = isinstance(operation, (of.Resize, of.RandomResizedCrop))
        if word in _PILLOW_ONLY and resizes:
            notes.append(
                f"{operation.name}: tensors have no {word} interpolation; {_PILLOW_ONLY[word]} is "
                f"used"
            )
        elif word not in (None, "nearest", "bilinear") and not resizes:
            notes.append(
                f"{operation.name}: tensors have no {word} interpolation here; bilinear is used"
            )
    return tuple(notes)


def build_v2(recipe: Recipe, seed: int = 0) -> Translation:
    """Translate to torchvision v2 on uint8 tensors.

    Args:
        recipe: the user's.
        seed: of the random operations; give every rank its own.

    Raises:
        MissingDependency: torchvision is not installed.
    """
    load("torchvision.transforms.v2")
    does = recipe.known
    return Translation(_OnTensors(does, seed), recipe.missing, _v2_differs(recipe), does)
