"""What feedline makes of a folder of traces, and no more than trace_peer.py does: load, budget,
overlap, idle time, on all CPUs.

Run by ingest_speed.py: python trace_figures.py FOLDER
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from feedline.analysis.ranks.ingest_traces import _read_trace
from feedline.analysis.ranks.many.rank_pool import chunked, each, local
from feedline.analysis.traces.rank_trace import RankTrace, summarise


def figures(paths: Sequence[str]) -> list[RankTrace]:
    """Of each file."""
    return [summarise(trace) for path in paths for trace in _read_trace(path)]


if __name__ == "__main__":
    files = sorted(str(path) for path in Path(sys.argv[1]).glob("*.json.gz"))
    with local() as pool:
        for found in each(pool, figures, chunked(files, 1), (), "reading", lambda *_: None):
            for one in found:
                print(
                    one.rank,
                    one.gpu.idle_pct,
                    one.gpu.compute_pct,
                    one.gpu.other_pct,
                    one.gpu.overlap_pct_of_comm,
                    one.budget.shares,
                )
