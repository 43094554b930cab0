"""Names of the files in a run folder."""

import re
from pathlib import Path

from feedline.profiler.files.single import PART

MANIFEST = "manifest.json"
SEGMENTS = "segments"
EVENTS = "events.parquet"
TOTALS = "totals.parquet"
GAUGES = "gauges.bin"
# in place of records: what another tool recorded of the rank (analysis/traces)
TRACE = "trace.parquet"
# beside records: a few steps under torch.profiler (taps/kineto_window.py)
KINETO = "kineto.json.gz"
RESERVE = "reserve"  # room for the last manifest on a disk that became full; removed at the end


def rank_folder(run: Path, rank: int, restart: int = 0) -> Path:
    """Return ``rank3``, or ``rank3-restart1`` for a rank that torchrun restarted."""
    return run / (f"rank{rank}-restart{restart}" if restart else f"rank{rank}")


def parse_rank_folder(name: str) -> tuple[int, int] | None:
    """Return (rank, restart) of a folder's name, or None when it is not a rank's."""
    match = re.fullmatch(r"rank(0|[1-9]\d{0,5})(?:-restart([1-9]\d{0,5}))?", name, re.ASCII)
    return (int(match[1]), int(match[2] or 0)) if match else None


def segment_paths(rank: Path) -> list[Path]:
    """Return the segments of a rank: the main process first, then the workers by name.

    What is half-written holds records of one of them a second time.
    """
    return sorted(
        (path for path in (rank / SEGMENTS).glob("*.seg") if not path.name.startswith(PART)),
        key=lambda path: (path.stem != "main", path.name),
    )


def main_segment(rank: Path) -> Path:
    return rank / SEGMENTS / "main.seg"


def worker_segment(rank: Path, loader: int, worker: int) -> Path:
    return rank / SEGMENTS / f"loader{loader}-worker{worker}.seg"
