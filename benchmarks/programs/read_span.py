"""One measurement of the storage probe in a process of its own, as fio is one; prints B/s.

python read_span.py FILE SIZE PATTERN HOW CACHE THREADS BLOCK SECONDS
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from feedline.pipelines.probes.measure import Plan, one_round
from feedline.pipelines.probes.storage import Way, span_work

file, size, pattern, how, cache, threads, block, seconds = sys.argv[1:]
way = Way(pattern, how, cache, int(threads), int(block))
with ThreadPoolExecutor(way.threads) as pool:
    found = one_round(span_work(os.open(file, os.O_RDONLY), int(size), way, Plan(seconds=10.0), pool), float(seconds))
print(found.units / found.wall_s)
