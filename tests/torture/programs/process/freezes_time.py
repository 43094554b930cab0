"""The clocks stand still, run backwards or raise, and sleep does nothing."""

import time

from tiny import digest, loader, network, train

now = iter(range(10**9, 0, -1))
time.time = time.monotonic = time.perf_counter = lambda: next(now)
time.time_ns = time.perf_counter_ns = time.monotonic_ns = lambda: 1 / 0
time.process_time = time.thread_time = time.process_time_ns = lambda: -1
time.sleep = lambda _: None
digest(train(network(), loader()))
