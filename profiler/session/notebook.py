"""The end of a recording in a notebook: shows the report below the cell."""

import html
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_WIDTH = 80
_HEIGHT = 640  # pixels of the frame: verdict, step and the first finding
_PAGE = "report.html"
# ipykernel sets the first, and rich would obey it
_COLORED = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


class Shown:
    """A finished recording, shown as its HTML report in a frame, or as the short text report."""

    def __init__(self, text: str, page: str) -> None:
        self._text, self._page = text, page

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {_HEIGHT}px; box-sizing: border-box; border: 1px solid #ccc"
        return (
            f'<iframe title="feedline report" style="{style}" sandbox="allow-scripts" '
            f'srcdoc="{html.escape(self._page)}"></iframe>'
        )

    def __repr__(self) -> str:
        return self._text


def shell() -> Any | None:
    """Return the interactive shell (Jupyter, IPython) that runs this program.

    None in a plain program, and in processes started from a shell.
    """
    processes, made = sys.modules.get("multiprocessing"), sys.modules.get("IPython")
    if made is None or (processes is not None and processes.parent_process() is not None):
        return None
    return getattr(made, "get_ipython", lambda: None)()


def show(run: Path) -> None:
    """Build the report of a run, and show it below the cell.

    Raises:
        RuntimeError: it could not be built; the error's text says why.
        OSError: as above.
    """
    shown = Shown(_built(run), (run / _PAGE).read_text(encoding="utf-8"))
    importlib.import_module("IPython.display").display(shown)


def _built(run: Path) -> str:
    """Write the report into the run folder, in a separate process.

    The kernel then does not load the analysis.

    Returns:
        The short report.
    """
    # not the notebook's folder, whose modules may have any name
    path = [place for place in sys.path if place and isinstance(place, str)]
    command = ["report", os.path.abspath(run), "--finish"]
    program = (
        f"import sys; sys.path[:] = {path!a}; from feedline.__main__ import main; "
        f"sys.exit(main({command!a}))"
    )
    surroundings = {name: value for name, value in os.environ.items() if name not in _COLORED}
    surroundings |= {"COLUMNS": str(_WIDTH), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-Wignore", "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=surroundings,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        )
    return done.stdout
