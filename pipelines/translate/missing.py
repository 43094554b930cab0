"""Operations that a translation cannot do, in the user's terms, and libraries that are not installed."""

import importlib
from collections.abc import Sequence
from types import ModuleType

from feedline.pipelines.translate.operations import Operation, RandomApply, Unknown
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


def _known(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    kept = [operation for operation in operations if not isinstance(operation, Unknown)]
    return tuple(RandomApply(_known(one.operations), one.p) if isinstance(one, RandomApply) else one for one in kept)
