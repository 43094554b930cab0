"""Checks whether a loader can run here, without heavy imports."""

import importlib.util
from collections.abc import Callable

import torch

from feedline.pipelines.translate.missing import PACKAGES


def needs(*modules: str, gpu: bool = False) -> Callable[[str], str | None]:
    """Create a ``LoaderKind.refuses``.

    Args:
        modules: that must be installed.
        gpu: whether it runs on a CUDA device only.
    """

    def refuses(device: str) -> str | None:
        absent = [PACKAGES.get(module, module) for module in modules if not installed(module)]
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
