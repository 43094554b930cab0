"""albumentations: every transform by its class name, through their common base class."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import augmented_size, collect, missing


def _install(tap: Tap, albumentations: ModuleType) -> None:
    tap.method(albumentations.BasicTransform, "__call__", Stage.AUGMENT, augmented_size)


def _selftest() -> str | None:
    import albumentations
    import numpy as np

    flip = albumentations.Compose([albumentations.HorizontalFlip(p=1)])
    spans = collect(lambda: flip(image=np.zeros((8, 8, 3), np.uint8)))
    return missing(spans, (Stage.AUGMENT, "HorizontalFlip"))


LIBRARY = Library("albumentations", "albumentations", "transforms by class", _install, _selftest)
