"""feedline: where every second of a training step goes.

feedline run train.py            from the shell, with no line changed
feedline.record("runs/mine")     around a part of a program: a context manager and a decorator
feedline.stage("mixup")          a stage of your own, inside a recording
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedline.profiler.record.api import record, stage

__version__ = "0.1.0"
__all__ = ["__version__", "record", "stage"]


def __getattr__(name: str) -> Any:
    if name in ("record", "stage"):
        from feedline.profiler.record import api

        return getattr(api, name)
    raise AttributeError(f"module 'feedline' has no attribute {name!r}")
