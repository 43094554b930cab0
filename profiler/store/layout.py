"""Names of the files in a run folder, and the layout of the file of one process's records.

segment.py writes that file, and segment_reader.py reads it.
"""

import errno
import json
import re
from pathlib import Path
from typing import Any

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
#: Batches that are kept or forgotten together: long enough to see queues fill and drain.
WINDOW = 64
BINS = 256
SAMPLE_HISTOGRAM = 0  # of a segment's two; the second is not in use
STAGES, FIELDS = 64, 8
MAGIC = b"FEEDSEG2"
PAGE = 4096
TOTALS_AT, HISTOGRAMS_AT, RECORDS_AT = PAGE, 2 * PAGE, 3 * PAGE


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


def bin_of(wall_ns: int) -> int:
    """Return the histogram bin of a duration: four per octave, so an edge is at most 25 % away."""
    octave = wall_ns.bit_length()
    return (octave << 2 | wall_ns >> octave - 3 & 3) if octave > 2 else wall_ns


def bin_edge_ns(index: int) -> int:
    """Lower edge of a bin: the smallest duration with ``bin_of(...) == index``."""
    octave = index >> 2
    return (4 | index & 3) << octave - 3 if octave > 2 else index


def page_of(header: dict[str, object]) -> bytes:
    """Return the first page of a file.

    Raises:
        OSError: the header does not fit into it.
    """
    text = MAGIC + json.dumps(header).encode()
    if len(text) >= PAGE:
        raise OSError(errno.EMSGSIZE, "segment header too long")
    return text.ljust(PAGE, b"\0")


def header_of(page: bytes) -> dict[str, Any]:
    """Return the header in the first page of a file that this version writes to.

    Raises:
        ValueError, RecursionError: there is none.
    """
    return dict(json.loads(page[len(MAGIC) : PAGE].rstrip(b"\0")))
