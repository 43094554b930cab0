"""torchvision.transforms.v2: every transform by its class name, including the user's, through their common base class."""

from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.collect import collect, missing
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.module_call import spanned_call


def _install(tap: Tap, v2: ModuleType) -> None:
    tap.patches.set(v2.Transform, "__call__", spanned_call(v2.Transform))


def _selftest() -> str | None:
    import torch
    from torchvision.transforms import v2

    spans = collect(lambda: v2.Compose([v2.CenterCrop(4)])(torch.zeros(3, 8, 8)))
    return missing(spans, (Stage.AUGMENT, "CenterCrop"))


LIBRARY = Library(
    "torchvision.transforms.v2",
    "torchvision.transforms.v2",
    "transforms by class, your own subclasses of Transform too; v2.functional is not seen on tensors",
    _install,
    _selftest,
)
