"""The file of one process's records, which segment.py writes and segment_reader.py reads.

0      4096   header: magic, then JSON (role, pid, ...; owner: segment_owner.py)
4096   4096   forgotten: int64 [64 stages, 8]: records, wall, cpu, runqueue, nbytes, extra, -, -;
              row 0: the stride mask
8192   4096   histograms: int64 [2, 256]: wall of samples (bin_of); the second is not in use
12288  64 n   records
"""

import errno
import json
from typing import Any

BINS = 256
SAMPLE_HISTOGRAM = 0  # of a segment's two; the second is not in use


def bin_of(wall_ns: int) -> int:
    """Return the histogram bin of a duration: four per octave, so an edge is at most 25 % away."""
    octave = wall_ns.bit_length()
    return (octave << 2 | wall_ns >> octave - 3 & 3) if octave > 2 else wall_ns


def bin_edge_ns(index: int) -> int:
    """Lower edge of a bin: the smallest duration with ``bin_of(...) == index``."""
    octave = index >> 2
    return (4 | index & 3) << octave - 3 if octave > 2 else index


STAGES, FIELDS = 64, 8

MAGIC = b"FEEDSEG2"
PAGE = 4096
TOTALS_AT, HISTOGRAMS_AT, RECORDS_AT = PAGE, 2 * PAGE, 3 * PAGE


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
