"""Versions of Python and of the libraries that the program has imported, as these report them."""

import platform
import re
import sys
from contextlib import suppress

#: Name in the manifest -> module. Package metadata would know them too, at 30 ms for the program.
_LIBRARIES = {
    "feedline": "feedline",
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "pillow": "PIL",
    "opencv-python": "cv2",
    "torchdata": "torchdata",
    "lightning": "lightning",
    "pytorch-lightning": "pytorch_lightning",
    "transformers": "transformers",
    "timm": "timm",
}
_VERSION = re.compile(r"\d[\w.+!-]{0,63}", re.ASCII)  # a module of the program's own may have such a name, and say anything


def versions() -> dict[str, str]:
    """Name -> version."""
    found = {"python": platform.python_version()}
    for name, module in _LIBRARIES.items():
        with suppress(Exception):
            said = str(sys.modules[module].__version__)
            if _VERSION.fullmatch(said):
                found[name] = said
    return found
