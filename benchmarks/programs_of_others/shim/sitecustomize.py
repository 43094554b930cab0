"""Timers made by hand, for programs that stay as they are: put this folder on PYTHONPATH and name a
folder in HAND_TIMERS.

Every process that trains leaves HAND_TIMERS/PID.json there: updates by optimizer, batches and
samples by loader, and where the time of its main thread went. Nothing of feedline is used.
HAND_INPUT names functions that make batches, as ``module:function`` divided by spaces, and
HAND_CODE others that are to be timed, each under its own name; HAND_LOADER holds keyword arguments,
as JSON, that every DataLoader gets instead of the program's own.
"""

import atexit
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time

now = time.perf_counter_ns


class Spans:
    """What the main thread did: (kind, begin, end, own time, who), ns.

    A span inside another is not part of the other's own time.
    """

    def __init__(self):
        self.done, self._open = [], []

    def begin(self, kind):
        if threading.current_thread() is threading.main_thread():
            self._open.append([kind, now(), 0])

    def end(self, kind, who=0, size=0):
        if (
            threading.current_thread() is not threading.main_thread()
            or not self._open
            or self._open[-1][0] != kind
        ):
            return
        _, begin, inside = self._open.pop()
        wall = now() - begin
        if self._open:
            self._open[-1][2] += wall
        self.done.append((kind, begin, begin + wall, wall - inside, who, size))

    def innermost(self):
        return self._open[-1][0] if self._open else None

    def inside(self, *kinds):
        return any(one[0] in kinds for one in self._open)


spans = Spans()
seen = {"optimizers": [], "loaders": []}
named = [(one, "input") for one in os.environ.get("HAND_INPUT", "").split()]
named += [
    (one, f"code {one.rpartition(':')[2].rpartition('.')[2]}")
    for one in os.environ.get("HAND_CODE", "").split()
]


def number_of(what, kind):
    """0, 1, ... in the order in which they are seen; they are kept, so that no other gets their
    address.
    """
    for number, other in enumerate(seen[kind]):
        if other is what:
            return number
    seen[kind].append(what)
    return len(seen[kind]) - 1


def size(batch):
    """Length of the first tensor in a batch."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else 1
    if getattr(batch, "num_graphs", None) is not None:
        return batch.num_graphs
    parts = (
        batch.values()
        if hasattr(batch, "values")
        else batch
        if isinstance(batch, (list, tuple))
        else ()
    )
    return next((found for part in parts if (found := size(part))), 0)


def timed(function, kind):
    """The same function; the outermost call of this kind is a span."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if spans.inside(kind):
            return function(*args, **kwargs)
        spans.begin(kind)
        try:
            return function(*args, **kwargs)
        finally:
            spans.end(kind)

    return call


def watch_loaders(data):
    made, asked, begun = (
        data.DataLoader.__init__,
        data._BaseDataLoaderIter.__next__,
        data.DataLoader.__iter__,
    )
    settings = json.loads(os.environ.get("HAND_LOADER", "{}"))

    @functools.wraps(made)
    def init(self, *args, **kwargs):
        made(self, *args, **({**kwargs, **settings} if settings else kwargs))

    def ask(self):
        spans.begin("next")
        found = None
        try:
            found = asked(self)
            return found
        finally:
            spans.end(
                "next", getattr(self, "_hand_loader", -1), size(found) if found is not None else 0
            )

    def begin(self):
        spans.begin("start")
        try:
            found = begun(self)
        finally:
            spans.end("start", number_of(self, "loaders"))
        found._hand_loader = number_of(self, "loaders")
        return found

    data.DataLoader.__init__, data._BaseDataLoaderIter.__next__, data.DataLoader.__iter__ = (
        init,
        ask,
        begin,
    )


def watch_model(torch):
    outermost = []

    def before(module, *_):
        if not spans.inside(
            "forward", "eval", "next", "start", "input"
        ):  # transforms are modules, too
            outermost.append((module, "forward" if torch.is_grad_enabled() else "eval"))
            spans.begin(outermost[-1][1])

    def after(module, *_):
        if outermost and outermost[-1][0] is module and spans.innermost() == outermost[-1][1]:
            spans.end(outermost.pop()[1])

    torch.nn.modules.module.register_module_forward_pre_hook(before)
    torch.nn.modules.module.register_module_forward_hook(after, always_call=True)
    backward = timed(torch.Tensor.backward, "backward")

    @functools.wraps(backward)
    def first(*args, **kwargs):
        wrap_named()
        return backward(*args, **kwargs)

    torch.Tensor.backward = first
    torch.autograd.backward = timed(torch.autograd.backward, "backward")
    torch.autograd.grad = timed(torch.autograd.grad, "backward")


def watch_updates():
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    def before(which, *_):
        wrap_named()
        spans.begin("update")

    def after(which, *_):
        spans.end("update", number_of(which, "optimizers"))

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def wrap_named():
    """Once the program has them: at the first backward pass or update."""
    while named:
        wrap(*named.pop())


def wrap(name, kind):
    module, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner = functools.reduce(getattr, owners, sys.modules[module])
    setattr(owner, last, timed(getattr(owner, last), kind))


def write():
    trained = any(span[0] in ("update", "backward") for span in spans.done)
    if trained and not write.__dict__.setdefault("done", False):
        write.done = True
        about = {
            "pid": os.getpid(),
            "optimizers": [type(one).__name__ for one in seen["optimizers"]],
            "spans": spans.done,
        }
        with open(os.path.join(os.environ["HAND_TIMERS"], f"{os.getpid()}.json"), "w") as file:
            json.dump(about, file)


def forked():
    spans.__init__()
    at_end()


def at_end():
    """A child of multiprocessing ends without what atexit has."""
    import multiprocessing.util

    atexit.register(write)
    multiprocessing.util.Finalize(None, write, exitpriority=0)


class AfterTorch(importlib.abc.MetaPathFinder):
    """Attaches the timers when torch has been imported."""

    asked = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.asked:
            return None
        self.asked = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asked = False
        execute = spec.loader.exec_module

        def exec_module(module):
            sys.meta_path.remove(self)
            execute(module)
            attach(module)

        spec.loader.exec_module = exec_module
        return spec


def attach(torch):
    import multiprocessing.util

    import torch.utils.data.dataloader

    watch_loaders(torch.utils.data.dataloader)
    watch_model(torch)
    watch_updates()
    at_end()
    multiprocessing.util.register_after_fork(spans, lambda _: forked())


if os.environ.get("HAND_TIMERS"):
    sys.meta_path.insert(0, AfterTorch())
