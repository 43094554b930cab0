"""Runs at the start of every Python process.

It does nothing, or waits until the program imports torch. It is called from feedline.pth in
site-packages, and from on_path/sitecustomize.py where PYTHONPATH says so. It imports nothing more:
every Python process of a training pays for it.
"""

import os
import sys

from feedline.profiler.follow import RUN_VARIABLE, SWITCH_VARIABLE


class _Waiting:
    """Import hook that finds nothing and only detects the import of torch."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]  # typing is not imported yet
        if name != "torch":
            return None
        stop()
        try:
            from feedline.profiler.follow import noticing

            noticing.follow_from_here()
        except Exception:
            return None  # the process is not recorded; the run names it
        from importlib.util import find_spec

        return find_spec(name)  # by the finders that came meanwhile


def begin() -> None:
    """Wait for torch if this process belongs to a recording."""
    if RUN_VARIABLE not in os.environ and os.environ.get(SWITCH_VARIABLE, "0") in ("", "0"):
        return
    if any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        return  # both feedline.pth and sitecustomize.py call it
    sys.meta_path.insert(0, _Waiting())
    # the recorded program replaced itself by this one
    if f'"top": {os.getpid()},' in os.environ.get(RUN_VARIABLE, ""):
        from feedline.profiler.follow import reporting

        reporting.at_the_end()


def stop() -> None:
    """Stop waiting: torch is being imported, or a feedline command records this process."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Waiting)]
