"""sys.monitoring of Python 3.12 and later counts lines of its own functions."""

import sys

from tiny import digest, step, train

events = sys.monitoring.events
sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "mine")
counts = []
sys.monitoring.register_callback(
    sys.monitoring.COVERAGE_ID, events.LINE, lambda code, line: counts.append(line)
)
sys.monitoring.set_local_events(sys.monitoring.COVERAGE_ID, step.__code__, events.LINE)
digest(train())
sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
print(counts)
