"""Libraries that may not be installed: what to install, and whether a loader can run here."""

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType

import torch

from feedline.profiler.errors import MissingDependency

_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python-headless", "nvidia": "nvidia-dali-cuda120"}


def _package_of(module: str) -> str:
    """Return what to install for a module, which may lie in a package of another name."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top)


def load(*names: str) -> ModuleType:
    """Import modules, and return the last one.

    Raises:
        MissingDependency: one is not installed, or its shared libraries are not found.
    """
    module: ModuleType | None = None
    for name in names:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError) as error:
            package = _package_of(name)
            raise MissingDependency(
                f"{name} cannot be imported ({error}): install {package}"
            ) from error
    assert module is not None
    return module


def installed(module: str) -> bool:
    """Tell whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or half initialised
        return False


def needs(*modules: str, gpu: bool = False) -> Callable[[str], str | None]:
    """Create a ``LoaderKind.refuses``, which imports nothing.

    Args:
        *modules: that must be installed.
        gpu: whether it runs on a CUDA device only.
    """

    def refuses(device: str) -> str | None:
        absent = [_package_of(module) for module in modules if not installed(module)]
        if "torchvision" in absent:  # pip would replace torch by what the newest torchvision wants
            return f"not installed: install the torchvision that matches torch {torch.__version__}"
        if absent:
            return f"not installed: pip install {' '.join(absent)}"
        if gpu and not torch.cuda.is_available():
            return "needs a CUDA device, and torch finds none"
        if gpu and not device.startswith("cuda"):
            return f"needs a CUDA device, but the batches go to {device}"
        return None

    return refuses
