"""The training profiles itself: torch.profiler with a schedule and on_trace_ready, and emits NVTX
ranges.
"""

import torch
from tiny import digest, loader, network, sgd, step
from torch.profiler import ProfilerActivity, profile, record_function, schedule

net = network()
optimizer = sgd(net)


def ready(profiler):
    names = {event.key: event.count for event in profiler.key_averages()}
    print(
        {
            name: count
            for name, count in sorted(names.items())
            if name.startswith(("aten::add", "mine", "ProfilerStep", "Optimizer"))
        }
    )


settings = {
    "activities": [ProfilerActivity.CPU],
    "schedule": schedule(wait=1, warmup=1, active=2, repeat=2),
    "on_trace_ready": ready,
}
with profile(record_shapes=True, with_stack=True, **settings) as profiler:
    for x in loader():
        with record_function("mine"):
            step(net, optimizer, x)
        profiler.step()
with torch.autograd.profiler.profile() as old:
    step(net, optimizer, x)
print(sorted({event.key for event in old.key_averages()}))
digest(net)
