"""sys.settrace follows every line of its own file, in threads too, while it trains."""

import sys
import threading

from tiny import digest, loader, network, sgd, step

lines = []


def trace(frame, event, arg):
    if not frame.f_code.co_filename.endswith(("settrace.py", "tiny.py")):
        return None
    lines.append((event, frame.f_code.co_name, frame.f_lineno))
    return trace


sys.settrace(trace)
threading.settrace(trace)
net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
print(sys.gettrace() is trace)
sys.settrace(None)
print(len(lines), hash(tuple(line[2] for line in lines)))
digest(net)
