"""Fixtures for every test."""

import functools
import os
import sys
from collections.abc import Iterator

import pytest
from warm_python import MODULES, WarmPython

# No test reaches a network: albumentations asks for its newest version when it is imported, the others for models.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = os.environ["HF_HUB_OFFLINE"] = "1"

# An error of feedline's own is a traceback here, not the one line that users get.
os.environ["FEEDLINE_TRACEBACK"] = "1"

# What taps replace, as "module:attribute"; looked at once the module is imported. A new tap adds its names here.
TAPPED = [
    "builtins:open",
    "PIL.Image:open",
    "torch.autograd:_engine_run_backward",
    "torch.autograd.profiler:_enable_profiler",
    "torch.autograd.profiler:_prepare_profiler",
    "torch.autograd:backward",
    "torch.autograd.graph:_engine_run_backward",
    "torch.distributed.distributed_c10d:Work.wait",
    "torch.distributed.distributed_c10d:_update_default_pg",
    "torch.nn.modules.module:Module.__call__",
    "torch.utils.data._utils.pin_memory:pin_memory",
    "torch.utils.data._utils.worker:_worker_loop",
    "torch.utils.data.dataloader:DataLoader.__init__",
    "torch.utils.data.dataloader:DataLoader.__iter__",
    "torch.utils.data.dataloader:_DatasetKind.create_fetcher",
]


def tap_state() -> dict[str, object]:
    """Everything in this process that a recording changes and has to put back."""
    state: dict[str, object] = {f"os.environ {name}": value for name, value in os.environ.items() if name.startswith("FEEDLINE")}
    state["sys.meta_path"] = [finder for finder in sys.meta_path if type(finder).__module__.startswith("feedline")]
    for name in TAPPED:
        module, _, attribute = name.partition(":")
        if module in sys.modules:
            owner: object = functools.reduce(lambda owner, part: getattr(owner, part, None), attribute.split("."), sys.modules[module])
            state[name] = id(owner)  # a function that somebody holds is not replaced
    return state


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    python = WarmPython(*MODULES)
    yield python
    python.close()


@pytest.fixture(autouse=True)
def no_tap_is_left_behind() -> Iterator[None]:
    """A test that attaches taps detaches them, or the next test measures them too."""
    before = tap_state()
    yield
    after = tap_state()
    known = set(TAPPED) - set(before)  # imported by this test: nothing to compare with
    changed = [name for name in {**before, **after} if name not in known and before.get(name) != after.get(name)]
    assert not changed, f"left behind by this test: {changed}"
