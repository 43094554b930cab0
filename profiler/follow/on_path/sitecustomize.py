"""sitecustomize on PYTHONPATH below ``feedline run``.

It starts following the process, then runs the program's own sitecustomize.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _here]
try:
    from feedline.profiler.follow import start

    start.begin()
except Exception:
    pass  # another Python, without feedline: the run names this process if it trains
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _own  # whoever imported this one looks for it
