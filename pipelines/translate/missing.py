"""What a translation cannot do, in the user's words, and libraries that are not there."""

import importlib
from collections.abc import Sequence
from types import ModuleType

from feedline.pipelines.translate.operations import Operation, RandomApply, Unknown
from feedline.pipelines.translate.recipe import Recipe
from feedline.profiler.errors import MissingDependency

PACKAGES = {"PIL": "pillow", "cv2": "opencv-python-headless", "nvidia.dali": "nvidia-dali-cuda120", "spdl.pipeline": "spdl"}


def load(*names: str) -> ModuleType:
    """Import modules; returns the last. Raises MissingDependency: one is not installed, or its shared libraries are not found."""
    module: ModuleType | None = None
    for name in names:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError) as error:
            package = PACKAGES.get(name, name)
            raise MissingDependency(f"{name} cannot be imported ({error}): pip install {package}, or compare without it") from error
    assert module is not None
    return module


def unknown(recipe: Recipe) -> tuple[str, ...]:
    """Every Unknown operation of the recipe, with its reason."""
    return tuple(f"{operation.what}: {operation.why}" for operation in recipe.unknown)


def known(recipe: Recipe) -> Recipe:
    """The recipe without its Unknown operations, those inside RandomApply too."""
    return Recipe(_known(recipe.operations), recipe.mean, recipe.std)


def _known(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    kept = [operation for operation in operations if not isinstance(operation, Unknown)]
    return tuple(RandomApply(_known(one.operations), one.p) if isinstance(one, RandomApply) else one for one in kept)
