"""What a session says of its hooks, whichever of its threads says it."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from feedline.profiler.files import owned
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


def test_a_manifest_begun_earlier_by_a_thread_does_not_replace_a_newer_one(tmp_path, monkeypatch):
    """A hook is reported from another thread while the program meets a loader."""
    session = Session(tmp_path / "run", [], stacks=False)
    write, begun, told = owned.write, threading.Event(), threading.Event()
    reporting = threading.Thread(target=session._tell_hook, args=("a hook", False, "not here"))

    def written_late(folder, name, text):
        if threading.current_thread() is reporting:
            begun.set()
            told.wait(1.0)
        write(folder, name, text)

    try:
        monkeypatch.setattr(owned, "write", written_late)
        reporting.start()
        begun.wait()
        session._tell_loader("Loader", {})
        told.set()
        reporting.join()
        assert len(Manifest.read(session.folder).loaders) == 1
    finally:
        session.stop()
