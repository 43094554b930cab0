"""One imported module has a syntax error, another raises, and a third raises SystemExit."""

import pathlib
import sys

from tiny import digest, train

pathlib.Path("bad.py").write_text("def f(:\n")
pathlib.Path("worse.py").write_text("import torch\nraise LookupError('at import')\n")
pathlib.Path("gone.py").write_text("raise SystemExit(44)\n")
for name in ("bad", "worse"):
    try:
        __import__(name)
    except Exception as error:
        print(type(error).__name__, error, name in sys.modules)
digest(train())
import gone  # noqa: E402, F401
