"""Fixtures for every test."""

import fcntl
import functools
import gc
import hashlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from quiet_moment import QuietMoment
from warm_python import MODULES, WarmPython

if TYPE_CHECKING:
    from report.browser import Browser

# No test reaches a network: albumentations asks for its newest version when it is imported, the
# others for models.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = os.environ["HF_HUB_OFFLINE"] = "1"

# How long an example takes says how busy the machine is. The same examples each time, so that a
# change is judged by what it changes; scripts/test-long draws new ones ("by chance").
settings.register_profile("by chance", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("the same each time", settings.get_profile("by chance"), derandomize=True)
settings.load_profile("the same each time")

# An error of feedline's own is a traceback here, not the one line that users get.
os.environ["FEEDLINE_TRACEBACK"] = "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let what counts the retries send at once: each test of a process beside others tells it two
    small things, of which the second waited 40 ms for the first to be acknowledged.
    """
    counter = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if counter is not None:
        counter.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_finish() -> None:
    """Set aside the tests themselves, millions of objects that each full collection of a test, and
    each fork, would look at.
    """
    gc.collect()
    gc.freeze()
    # Every recording asks, and they are counted one by one: 0.1 s.
    gc.get_freeze_count = functools.wraps(gc.get_freeze_count)(lambda: 0)
    replayed_once()


def replayed_once() -> None:
    """Replay the same pass with the same settings once: hundreds of tests ask for reports and
    predictions of the same stored runs, and half of what these take is replays.
    """
    module = sys.modules.get("feedline.analysis.predict.recorded_input")
    if module is None or hasattr(module.replay, "__wrapped__"):
        return
    replay, known = module.replay, {}

    @functools.wraps(replay)
    def once(*arguments: object) -> object:
        asked = hashlib.sha256(pickle.dumps(arguments)).digest()
        if asked not in known:
            known[asked] = pickle.dumps(replay(*arguments))
        return pickle.loads(known[asked])

    module.replay = once


def tap_state() -> dict[str, object]:
    """Everything in this process that a recording changes and has to put back."""
    state: dict[str, object] = {
        f"os.environ {name}": value
        for name, value in os.environ.items()
        if name.startswith("FEEDLINE")
    }
    state["sys.meta_path"] = [
        finder for finder in sys.meta_path if type(finder).__module__.startswith("feedline")
    ]
    if (patch := sys.modules.get("feedline.profiler.taps.patch")) is not None:
        state |= {
            f"{patch._place_of(*place)}": id(new)
            for *place, _, new in patch.Patches.standing()
            if hasattr(place[0], "__name__")
        }
    if (updates := sys.modules.get("feedline.profiler.taps.updates")) is not None:
        state["followers of updates"] = updates.updates._before + updates.updates._after or None
    return state


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    python = WarmPython(*MODULES)
    yield python
    python.close()


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Gives a folder that the first process of this run of pytest to want it has filled: recordings
    that take long, not to be changed.
    """
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, whole = shared / name, shared / f"{name}.whole"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                whole.touch()
        return folder

    return made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Gives a function that mounts a file system of so many bytes."""
    disk = tmp_path / "disk"

    def mount(size: int) -> Path:
        disk.mkdir()
        command = [
            "sh",
            "-c",
            'mount "$@"',
            "sh",
            "-t",
            "tmpfs",
            "-o",
            f"size={size}",
            "tmpfs",
            str(disk),
        ]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", "--lazy", disk], check=True)


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
CHROMIUM_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """A real Chromium, for what only a browser can tell."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(
            "chromium or chromedriver is not installed (Debian packages chromium, chromium-driver)"
        )
    from report.browser import Browser
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in [*CHROMIUM_FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(DRIVER, log_output=os.devnull)
    )
    try:
        yield Browser(driver, tmp_path_factory.mktemp("reports"))
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def quiet_moment() -> QuietMoment:
    return QuietMoment()


@pytest.fixture(autouse=True)
def begins_in_a_quiet_moment(request: pytest.FixtureRequest, quiet_moment: QuietMoment) -> None:
    """Another program on the machine is told of as well, and hides what is planted."""
    if request.node.get_closest_marker("quiet"):
        quiet_moment.wait()


@pytest.fixture(autouse=True)
def dynamo_forgets() -> Iterator[None]:
    """What a test compiled is forgotten before the next one:

    FLOPs are not counted where torch.compile has compiled something.
    """
    yield
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.utils.counters:
        dynamo.reset()
        dynamo.utils.counters.clear()


@pytest.fixture(autouse=True)
def no_tap_is_left_behind() -> Iterator[None]:
    """A test that attaches taps detaches them, or the next test measures them too."""
    before = tap_state()
    yield
    after = tap_state()
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    assert not changed, f"left behind by this test: {changed}"
