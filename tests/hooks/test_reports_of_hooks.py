"""What a session says of its hooks, whichever of its threads says it."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from feedline.profiler.session.session import Session
from feedline.profiler.store.manifest import Manifest

NAMES, THREADS = 200, 8


@pytest.fixture
def switching_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_hooks_that_threads_report_at_the_same_time_are_all_kept(tmp_path, switching_often):
    session = Session(tmp_path / "run", [], stacks=False)
    try:
        session._hooks.arriving = True  # one write at the end
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda n: session._tell_hook(f"hook {n}", True, ""), range(NAMES)))
    finally:
        session.stop()

    said = [str(hook["name"]) for hook in Manifest.read(session.folder).hooks]
    assert {f"hook {n}" for n in range(NAMES)} <= set(said)
    assert len(said) == len(set(said))
