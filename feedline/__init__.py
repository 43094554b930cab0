"""feedline: where every second of a training step goes.

feedline run train.py            from the shell, with no line changed
feedline.record("runs/mine")     around a part of a program: a context manager and a decorator
feedline.stage("mixup")          a stage of your own, inside a recording
feedline.metric("val accuracy", a)    a number of the training, for `feedline converge`
feedline.on_trace_ready("dir")   for torch.profiler.profile(on_trace_ready=...): traces for `feedline ingest`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedline.profiler.record.api import metric, record, stage
    from feedline.profiler.record.trace_ready import on_trace_ready

__version__ = "0.1.0"
__all__ = ["__version__", "metric", "on_trace_ready", "record", "stage"]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name in ("metric", "record", "stage"):
        from feedline.profiler.record import api

        return getattr(api, name)
    if name == "on_trace_ready":
        from feedline.profiler.record.trace_ready import on_trace_ready

        return on_trace_ready
    raise AttributeError(f"module 'feedline' has no attribute {name!r}")
