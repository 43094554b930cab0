"""What Holistic Trace Analysis, or its successor traceinsight, makes of a folder of traces: load,
temporal breakdown, overlap, idle time.

Run by ingest_speed.py with the Python of an environment that has one of them: python trace_peer.py
FOLDER
"""

import sys

from hta.trace_analysis import TraceAnalysis  # both packages are imported under this name

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    print(analysis.get_temporal_breakdown(visualize=False))
    print(analysis.get_comm_comp_overlap(visualize=False))
    ranks = sorted(analysis.t.traces)
    print(analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0])
