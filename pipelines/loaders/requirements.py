"""Checks whether a loader can run here, without heavy imports."""

import importlib.util
from collections.abc import Callable

import torch

from feedline.pipelines.translate.missing import package_of


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
