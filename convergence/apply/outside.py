"""The places at which fixes act on an unchanged training: patches of torch that are undone with the recording.

    torch.optim.SGD(...)                another optimizer is made                     Training.optimizer
    Optimizer.__init__                  its rates are scaled, no scheduler knows yet   Training.made_optimizer
    the first forward that trains       layers are exchanged                           Training.model
    every forward that trains           its output is changed on the way               Training.output
    optimizer.step                      its rates are others for one update            Training.rate

What a fix raises is told, not raised, and the training goes on without that fix: ``failed`` says which.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from feedline.convergence.apply.request import Request
from feedline.convergence.fix import Progress
from feedline.convergence.rates import Changed, multiply, put_back
from feedline.profiler import ranks
from feedline.profiler.message import ReportHook
from feedline.profiler.taps.convergence import is_model
from feedline.profiler.taps.convergence.training_setup import rows
from feedline.profiler.taps.patch import Patches
from feedline.profiler.torch_internals import hide_from_dynamo, in_backward

_REPLACED = ("SGD", "Adam", "AdamW")
Make = Callable[[type[torch.optim.Optimizer], Any, dict[str, Any]], torch.optim.Optimizer]


class _Depth(threading.local):
    """Whether this thread is already inside a model."""

    inside = 0


class FixInjector:
    """A ``Training`` (convergence/fix.py).

    Attributes:
        ranks: processes of the training.
        failed: fix -> why it did not act.
    """

    def __init__(self, tell: ReportHook) -> None:
        self.ranks = ranks.place().world_size
        self.failed: dict[str, str] = {}
        self._tell = tell
        self._acting = ""  # the fix that is being attached
        self._models: list[tuple[str, Callable[[torch.nn.Module], None]]] = []
        self._outputs: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = []
        self._made: list[tuple[str, Callable[[torch.optim.Optimizer], None]]] = []
        self._rates: list[tuple[str, Callable[[Progress], float]]] = []
        self._make: tuple[str, Make] | None = None
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._changed: dict[int, Changed] = {}
        self._depth = _Depth()
        self._updates = self._samples = self._before = 0
        self._last_loader: int | None = None  # samples that all ranks draw from it in an epoch
        self._epoch: int | None = None

    def attach(self, requests: list[Request], patches: Patches) -> Callable[[], None]:
        """Let the fixes register their places, and patch these. Returns a function that undoes everything except patches."""
        for request in requests:
            self._acting = request.fix.name
            assert request.fix.attach is not None
            with self._guarded(request.fix.name):
                request.fix.attach(request.setting, self)
                self._tell(f"fix {request.fix.name}", True, request.text)
        self._patch_forward(patches)
        self._patch_loader(patches)
        if self._make is not None:
            for name in _REPLACED:
                self._patch_class(patches, name)
        if self._made:
            self._patch_init(patches)
        hooks = [
            torch_optimizer.register_optimizer_step_pre_hook(self._before_update),
            torch_optimizer.register_optimizer_step_post_hook(self._after_update),
        ]

        def undo() -> None:
            for hook in hooks:
                hook.remove()

        return undo

    def optimizer(self, make: Make) -> None:
        self._make = self._acting, make

    def made_optimizer(self, act: Callable[[torch.optim.Optimizer], None]) -> None:
        self._made.append((self._acting, act))

    def rate(self, factor: Callable[[Progress], float]) -> None:
        self._rates.append((self._acting, factor))

    def model(self, act: Callable[[torch.nn.Module], None]) -> None:
        self._models.append((self._acting, act))

    def output(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._outputs.append((self._acting, act))

    @contextmanager
    def _guarded(self, fix: str) -> Iterator[None]:
        """What a fix raises ends that fix, and nothing else."""
        try:
            yield
        except Exception as error:
            self._fail(fix, error)

    def _fail(self, fix: str, error: Exception) -> None:
        if fix not in self.failed:
            self.failed[fix] = str(error) or type(error).__name__
            self._tell(f"fix {fix}", False, self.failed[fix])

    def _patch_forward(self, patches: Patches) -> None:
        original = torch.nn.Module.__call__
        is_compiling, depth = torch.compiler.is_compiling, self._depth

        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or depth.inside or not (module.training and torch.is_grad_enabled()) or in_backward():
                return original(module, *args, **kwargs)
            return self._forward(original, module, args, kwargs)

        hide_from_dynamo(__call__)
        patches.set(torch.nn.Module, "__call__", __call__)

    def _forward(self, original: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if not is_model(module):
            return original(module, *args, **kwargs)
        if module not in self._seen:
            self._seen.add(module)
            self._epoch = self._last_loader
            for name, act in self._models:
                with self._guarded(name):
                    act(module)
        self._samples += rows(args, kwargs)
        self._depth.inside += 1
        try:
            output = original(module, *args, **kwargs)
        finally:
            self._depth.inside -= 1
        for name, change in self._outputs:
            with self._guarded(name):
                if not isinstance(output, torch.Tensor) or not output.dim():
                    raise ValueError(f"the model returns {type(output).__name__}, not one tensor with a row per sample")
                output = change(output)
        return output

    def _patch_loader(self, patches: Patches) -> None:
        original = DataLoader.__iter__

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            try:
                self._last_loader = len(loader.sampler) * self.ranks
            except Exception:
                self._last_loader = None  # a stream
            return original(loader)

        patches.set(DataLoader, "__iter__", __iter__)

    def _patch_class(self, patches: Patches, name: str) -> None:
        original = getattr(torch.optim, name)

        made_types: list[type] = []

        class Kind(type(original)):  # type: ignore[misc]
            """Class of an optimizer that replaces one of torch; isinstance checks for torch's class still hold."""

            def __instancecheck__(cls, instance: object) -> bool:
                if cls is not replacement:
                    return super().__instancecheck__(instance)
                return isinstance(instance, original) or type(instance) in made_types

        def __new__(cls: type, params: Any = (), *args: Any, **kwargs: Any) -> Any:
            if cls is not replacement or getattr(torch.optim, name) is not replacement or self._make is None:
                return object.__new__(cls)  # a class of the program's own
            fix, make = self._make
            params = list(params)
            try:
                made = make(original, params, {**kwargs, **dict(zip(("lr",), args, strict=False))})
            except Exception as error:
                self._fail(fix, error)
                return original(params, *args, **kwargs)
            made_types.append(type(made))
            return made

        replacement = Kind(name, (original,), {"__new__": __new__, "__module__": original.__module__, "__doc__": original.__doc__})
        patches.set(torch.optim, name, replacement)

    def _patch_init(self, patches: Patches) -> None:
        original = torch.optim.Optimizer.__init__

        @functools.wraps(original)
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            for name, act in self._made:
                with self._guarded(name):
                    act(optimizer)

        patches.set(torch.optim.Optimizer, "__init__", __init__)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        put_back(self._changed.pop(id(optimizer), []))  # the last update raised
        batch = (self._samples - self._before) * self.ranks
        progress = Progress(self._updates, self._before * self.ranks, self._epoch, batch, self.ranks)
        factor = 1.0
        for name, of in self._rates:
            with self._guarded(name):
                factor *= of(progress)
        if factor != 1.0:
            self._changed[id(optimizer)] = multiply(optimizer, factor)

    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        put_back(self._changed.pop(id(optimizer), []))
        self._updates += 1
        self._before = self._samples
