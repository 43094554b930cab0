"""What a program can see of its process: handlers, hooks, settings, environment, limits and state
of torch.
"""

import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import warnings

import torch
from tiny import digest, loader, network, train

net = train(network(), loader(num_workers=1))
print(
    {number.name: str(signal.getsignal(number)).partition(" at ")[0] for number in signal.Signals}
)
print(
    signal.pthread_sigmask(signal.SIG_BLOCK, []),
    signal.getitimer(signal.ITIMER_REAL),
    signal.set_wakeup_fd(-1),
)
print(
    sys.excepthook is sys.__excepthook__,
    threading.excepthook is threading.__excepthook__,
    sys.unraisablehook is sys.__unraisablehook__,
)
print(
    sys.gettrace(),
    sys.getprofile(),
    sys.flags,
    sys.argv,
    __name__,
    __file__,
    __spec__,
    __package__,
    __builtins__,
)
print(
    sys.stdin.name,
    sys.stdout.name,
    sys.stderr.name,
    sys.stdout.encoding,
    sys.stdout.line_buffering,
    sys.displayhook,
)
print(
    warnings.filters[:3],
    len(warnings.filters),
    sys.warnoptions,
    sys.getrecursionlimit(),
    sys.getswitchinterval(),
)
print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0, gc.get_debug())
print(
    locale.setlocale(locale.LC_ALL),
    os.getcwd(),
    os.umask(0o22),
    os.getpriority(os.PRIO_PROCESS, 0),
    os.sched_getaffinity(0),
)
print(
    sorted(
        name
        for name in os.environ
        if name not in ("_", "SHLVL", "OLDPWD", "PYTHONPATH", "FEEDLINE_RUN")
    )
)
print(
    [
        resource.getrlimit(getattr(resource, name))
        for name in sorted(dir(resource))
        if name.startswith("RLIMIT")
    ]
)
print(logging.getLogger().handlers, logging.getLogger().level, logging.root.manager.disable)
print(
    multiprocessing.get_start_method(),
    multiprocessing.active_children(),
    multiprocessing.parent_process(),
    threading.current_thread().name,
)
print(
    torch.is_grad_enabled(),
    torch.get_num_threads(),
    torch.get_default_dtype(),
    torch.is_anomaly_enabled(),
    torch.are_deterministic_algorithms_enabled(),
)
print(
    torch._C._len_torch_function_stack(),
    torch._C._len_torch_dispatch_stack(),
    torch.autograd._profiler_enabled(),
)
print(net._forward_hooks, net._forward_pre_hooks, vars(net).keys(), type(net).__mro__)
print(
    sys.path[:1],
    sys.modules["__main__"].__dict__ is globals(),
    threading.stack_size(),
    sys.getdlopenflags(),
)
digest(net)
