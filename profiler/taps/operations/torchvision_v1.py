"""torchvision.transforms: every transform by its class name, including the user's subclasses."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations import sizes
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.module_call import spanned_call

_WITHOUT = ("RandomTransforms",)  # an abstract base


def _install(tap: Tap, transforms: ModuleType) -> None:
    from torch.nn import Module

    for module in (transforms.transforms, transforms.autoaugment):
        for cls in [value for value in vars(module).values() if isinstance(value, type)]:
            if cls.__module__ != module.__name__ or cls.__name__ in _WITHOUT:
                continue
            if Module in cls.__bases__:
                tap.patches.set(cls, "__call__", spanned_call(cls))
            elif "__call__" in vars(cls):
                tap.method(cls, "__call__", Stage.AUGMENT, sizes.augmented)


def _selftest() -> str | None:
    import numpy as np
    from torchvision import transforms

    chain = transforms.Compose([transforms.ToTensor(), transforms.CenterCrop(4)])
    spans = collect(lambda: chain(np.zeros((8, 8, 3), np.uint8)))
    return missing(spans, (Stage.AUGMENT, "ToTensor"), (Stage.AUGMENT, "CenterCrop"))


LIBRARY = Library(
    "torchvision.transforms",
    "torchvision.transforms",
    "transforms by class; callables of your own inside a Compose count as the Compose's own time",
    _install,
    _selftest,
)
