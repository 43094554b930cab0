"""Translation to a DALI pipeline, on the CPU or with a GPU ("mixed").

Decoding ignores EXIF orientation and smooths chroma as libjpeg does for Pillow. What DALI cannot do
is left out and named in ``missing``: RandAugment and TrivialAugmentWide (DALI has ready policies,
with other ranges), padding by reflection, fills of several colors in warps, expanding rotations.
ColorJitter comes in one fixed order; the random order of torchvision changes only what clipping and
rounding change.
"""

from typing import Any

from feedline.pipelines.libraries import load
from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.image_operations import (
    ImageOperation,
    UnknownOperation,
    size_after,
)
from feedline.pipelines.translate.recipe import Recipe, Translation, flatten_operations


def dali_refuses(operation: ImageOperation) -> str | None:
    """Say why DALI cannot do an operation, or None."""
    match operation:
        case of.RandAugment() | of.TrivialAugmentWide():
            return "DALI's own version has other ranges and needs conditional execution"
        case of.Tone() | of.Adjust(kind="sharpness"):
            return "DALI's result differs from Pillow's"
        case of.Pad() | of.PadToSize() | of.RandomCrop() if operation.mode != "constant":
            return f"DALI pads with one color, not by {operation.mode}"
        case of.Rotate() | of.RandomRotation() if operation.expand:
            return "expand=True gives every image a different size"
        case of.Affine() | of.Rotate() | of.RandomAffine() | of.RandomRotation() if (
            len(set(operation.fill)) > 1
        ):
            return "DALI fills with one gray level, not with a color"
        case of.RandomErasing() | of.Erase() if operation.value is None:
            return "DALI erases with a color, not with noise"
        case of.RandomApply():
            return _refuses_some(operation)
    return None


def _refuses_some(operation: of.RandomApply) -> str | None:
    for inner in operation.operations:
        if not isinstance(inner, UnknownOperation) and (why := dali_refuses(inner)):
            return f"{inner.name} inside it: {why}"
    nominal = (64, 48)
    if size_after(operation.operations, nominal) != nominal:
        return "it changes the size of some of the images"
    return None


def _dali_differs(operation: ImageOperation) -> str | None:
    """Say how DALI's pixels differ for the same parameters, or None."""
    match operation:
        case of.ColorJitter() if operation.hue is not None:
            return (
                "hue is rotated in YIQ, not HSV; the four adjustments are applied in a fixed order"
            )
        case of.ColorJitter():
            return "the adjustments are applied in a fixed order"
        case of.Adjust(kind="hue"):
            return "hue is rotated in YIQ, not HSV"
        case of.Resize() | of.RandomResizedCrop() if operation.interpolation in ("box", "hamming"):
            return f"DALI has no {operation.interpolation} filter; bilinear is used"
        case of.Affine() | of.Rotate() | of.RandomAffine() | of.RandomRotation() if (
            operation.interpolation == "bilinear"
        ):
            return "edges of the image are mixed with the fill"
        case of.Affine() | of.Rotate() | of.RandomAffine() | of.RandomRotation() if (
            operation.interpolation != "nearest"
        ):
            return f"DALI does not warp by {operation.interpolation}; bilinear is used"
    return None


class _InPipeline:
    """Callable inside a pipeline definition, on encoded images (a CPU DataNode of bytes).

    It returns a uint8 HWC DataNode.
    """

    def __init__(self, operations: list[ImageOperation], device: str) -> None:
        self.operations = operations
        self.device = device

    def __call__(self, encoded: Any) -> Any:
        from feedline.pipelines.translate.dali_calls import decode, perform_dali

        images, rest = decode(encoded, self.operations, self.device)
        for operation in rest:
            images = perform_dali(images, operation)
        return images.node


def build_dali(recipe: Recipe, device: str) -> Translation:
    """Translate to DALI.

    Random numbers follow from the pipeline's seed.

    Args:
        recipe: the user's.
        device: ``cpu``, or ``mixed``: decode and transform on the pipeline's GPU.

    Raises:
        MissingDependency: DALI is not installed.
    """
    load("nvidia.dali.fn")
    missing, notes, done = list(recipe.missing), [], []
    for operation in recipe.known.operations:
        if why := dali_refuses(operation):
            missing.append(f"{operation.name}: {why}")
            continue
        done.append(operation)
        notes += [
            f"{inner.name}: {how}"
            for inner in flatten_operations([operation])
            if (how := _dali_differs(inner))
        ]
    does = Recipe(tuple(done), recipe.mean, recipe.std)
    return Translation(_InPipeline(does.images, device), tuple(missing), tuple(notes), does)
