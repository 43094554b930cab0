"""Fixtures for every test."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from warm_python import MODULES, WarmPython

# No test reaches a network: albumentations asks for its newest version when it is imported, the others for models.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = os.environ["HF_HUB_OFFLINE"] = "1"

# How long an example takes says how busy the machine is.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# An error of feedline's own is a traceback here, not the one line that users get.
os.environ["FEEDLINE_TRACEBACK"] = "1"


def tap_state() -> dict[str, object]:
    """Everything in this process that a recording changes and has to put back."""
    state: dict[str, object] = {f"os.environ {name}": value for name, value in os.environ.items() if name.startswith("FEEDLINE")}
    state["sys.meta_path"] = [finder for finder in sys.meta_path if type(finder).__module__.startswith("feedline")]
    if (patch := sys.modules.get("feedline.profiler.taps.patch")) is not None:
        state |= {f"{patch.place_of(*place)}": id(new) for *place, _, new in patch.Patches.standing() if hasattr(place[0], "__name__")}
    if (updates := sys.modules.get("feedline.profiler.taps.updates")) is not None:
        state["followers of updates"] = updates.updates._before + updates.updates._after or None
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
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    assert not changed, f"left behind by this test: {changed}"
