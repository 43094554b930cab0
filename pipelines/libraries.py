"""Operations that a translation cannot do, in the user's terms, and libraries that are not installed."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType

import torch

from feedline.pipelines.translate.image_operations import ImageOperation, RandomApply, UnknownOperation
from feedline.pipelines.translate.recipe import Recipe
from feedline.profiler.errors import MissingDependency

_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python-headless", "nvidia": "nvidia-dali-cuda120"}


def package_of(module: str) -> str:
    """What to install for a module, which may lie in a package of another name."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top)


def load(*names: str) -> ModuleType:
    """Import modules; returns the last one.

    Raises:
        MissingDependency: one is not installed, or its shared libraries are not found.
    """
    module: ModuleType | None = None
    for name in names:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError) as error:
            raise MissingDependency(f"{name} cannot be imported ({error}): install {package_of(name)}") from error
    assert module is not None
    return module


def unknown(recipe: Recipe) -> tuple[str, ...]:
    """Every Unknown operation of the recipe, with its reason."""
    return tuple(f"{operation.what}: {operation.why}" for operation in recipe.unknown)


def known(recipe: Recipe) -> Recipe:
    """The recipe without its Unknown operations, including those inside RandomApply."""
    return Recipe(_known(recipe.operations), recipe.mean, recipe.std)


def _known(operations: Sequence[ImageOperation]) -> tuple[ImageOperation, ...]:
    kept = [operation for operation in operations if not isinstance(operation, UnknownOperation)]
    return tuple(RandomApply(_known(one.operations), one.p) if isinstance(one, RandomApply) else one for one in kept)


def needs(*modules: str, gpu: bool = False) -> Callable[[str], str | None]:
    """Create a ``LoaderKind.refuses``.

    Args:
        modules: that must be installed.
        gpu: whether it runs on a CUDA device only.
    """

    def refuses(device: str) -> str | None:
        absent = [package_of(module) for module in modules if not installed(module)]
        if "torchvision" in absent:  # pip would replace torch by the one that the newest torchvision wants
            return f"not installed: install the torchvision that matches torch {torch.__version__}"
        if absent:
            return f"not installed: pip install {' '.join(absent)}"
        if gpu and not torch.cuda.is_available():
            return "needs a CUDA device, and torch finds none"
        if gpu and not device.startswith("cuda"):
            return f"needs a CUDA device, but the batches go to {device}"
        return None

    return refuses


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or half initialised
        return False
