"""feedline: a profiler for PyTorch training that says where the time of a step goes.

feedline run train.py            records an unchanged script, from the shell
feedline.record("runs/mine")     records a part of a program: a context manager and a decorator
feedline.stage("mixup")          names a stage of your own, inside a recording
feedline.metric("val accuracy", a)    records a number of the training, for `feedline converge`
feedline.on_trace_ready("dir")   for torch.profiler.profile(on_trace_ready=...): writes traces
feedline.load("runs/mine")       opens a recorded run: its report, and pandas frames
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedline.analysis.report.loaded import LoadedRun, load, load_all
    from feedline.profiler.errors import FeedlineError
    from feedline.profiler.session.api import metric, on_trace_ready, record, stage

__version__ = "0.1.0"
__all__ = [
    "FeedlineError",
    "LoadedRun",
    "__version__",
    "load",
    "load_all",
    "metric",
    "on_trace_ready",
    "record",
    "stage",
]

#: Public name -> its module, which is imported when the name is first used.
_HOMES = {
    "FeedlineError": "feedline.profiler.errors",
    "LoadedRun": "feedline.analysis.report.loaded",
    "load": "feedline.analysis.report.loaded",
    "load_all": "feedline.analysis.report.loaded",
    "metric": "feedline.profiler.session.api",
    "on_trace_ready": "feedline.profiler.session.api",
    "record": "feedline.profiler.session.api",
    "stage": "feedline.profiler.session.api",
}


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'feedline' has no attribute {name!r}")
