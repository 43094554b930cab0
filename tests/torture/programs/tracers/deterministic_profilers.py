"""cProfile, tracemalloc and the trace module look at the same training."""

import cProfile
import io
import pstats
import trace
import tracemalloc

from tiny import digest, network, step, train

tracemalloc.start(5)
profile = cProfile.Profile()
net = profile.runcall(train, network())
stats = pstats.Stats(profile, stream=io.StringIO()).stats
print({name: data[0] for (_, _, name), data in stats.items() if name == step.__name__})
counted = trace.Trace(count=True, trace=False)
counted.runfunc(train, net)
counts = counted.results().counts
print(sorted({n for (file, _), n in counts.items() if file.endswith("tiny.py")}))
print(tracemalloc.is_tracing(), len(tracemalloc.take_snapshot().traces) > 0)
tracemalloc.stop()
digest(net)
