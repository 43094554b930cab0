"""What to record and how, passed from process to process in the environment variable FEEDLINE_RUN."""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from feedline.profiler.follow import RUN_VARIABLE

ON_PATH = str(Path(__file__).parent / "on_path")


@dataclass(frozen=True)
class RecordingSettings:
    """Settings of a recording.

    Attributes:
        top: pid of the process whose end makes the report.
        run: the run folder, absolute.
        launch: of the run folder's list; see files/owned.claim.
        every, window, record_argv: as of session/session.Session; the window as it was typed.
        report: arguments of ``feedline report`` at the end.
        folder: working directory at the start.
        path: sys.path at the start.
        settings, made_at, strict: arguments of the training's DataLoader to change; as of
            session/overrides.Overrides.
        stop_after: as of session/stop_after.StopAfter; "": never.
        stacks: whether lines of code are sampled.
    """

    top: int
    run: str
    launch: str = ""
    every: int | None = None
    window: str | None = None
    record_argv: str = "masked"
    report: tuple[str, ...] = ()
    folder: str = "."
    path: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    made_at: str = ""
    strict: bool = False
    stop_after: str = ""
    stacks: bool = True

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> "RecordingSettings | None":
        """Return the settings in the environment.

        None: there are none, or none that can be read.
        """
        try:
            data = json.loads(environ[RUN_VARIABLE])
            return cls(**{**data, "report": tuple(data["report"]), "path": tuple(data["path"])})
        except (LookupError, ValueError, TypeError):
            return None

    @classmethod
    def of_this_process(cls) -> "RecordingSettings":
        """Return the settings for FEEDLINE=1.

        They record this process and those below it, into runs/SCRIPT-TIME.
        """
        script = (
            Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
        )
        folder = Path.cwd()
        run = folder / "runs" / f"{script}-{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
        return cls(
            os.getpid(),
            str(run),
            f"process-{os.getpid()}-{time.time_ns()}",
            folder=str(folder),
            path=tuple(place for place in sys.path if isinstance(place, str)),
        )

    def export(self) -> None:
        """Put the settings into the environment of this process, for its children."""
        os.environ.update(self.variables(os.environ))

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that change."""
        path = environ.get("PYTHONPATH")  # an empty part of it is the working directory
        others = [part for part in path.split(os.pathsep) if part != ON_PATH] if path else []
        return {
            RUN_VARIABLE: json.dumps(asdict(self)),
            "PYTHONPATH": os.pathsep.join([ON_PATH, *others]),
        }
