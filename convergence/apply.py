"""The fixes requested with ``--fix``."""

import functools
import inspect
import math
import sys
import threading
import weakref
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.hooks import RemovableHandle

from feedline.convergence.fix import (
    Fix,
    NothingToChange,
    RateChanges,
    TrainingProgress,
    multiply_rates,
    restore_rates,
)
from feedline.convergence.fixes import FIXES
from feedline.profiler import ranks
from feedline.profiler.errors import FixError
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.message import ReportHook
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.convergence import is_model
from feedline.profiler.taps.convergence.training_setup import rows
from feedline.profiler.taps.loader import TORCH
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.updates import OpenSteps
from feedline.profiler.torch_internals import hide_from_dynamo, in_backward

_REPLACED = ("SGD", "Adam", "AdamW")


@dataclass(frozen=True)
class _FixRequest:
    """One fix and its setting."""

    fix: Fix
    text: str
    setting: Any

    @property
    def lines(self) -> str:
        """Python that the user would write for it."""
        return self.fix.lines(self.setting)


def parse_fixes(text: str, ranks: int | None = None) -> list[_FixRequest]:
    """Read ``NAME=VALUE,NAME=VALUE,...``.

    Args:
        text: as the user wrote it.
        ranks: of the training that they are for; None: not known yet.

    Raises:
        FixError: an unknown fix, an invalid value, a fix that cannot be applied from outside or on
            so many ranks, or two that contradict each other.
    """
    known = {fix.name: fix for fix in FIXES}
    requests: list[_FixRequest] = []
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        fix = known.get(name.strip())
        if fix is None:
            raise FixError(
                f"unknown fix {name.strip()!r}; the fixes are {', '.join(sorted(known))}"
            )
        try:
            request = _FixRequest(fix, part.strip(), fix.parse(value.strip()))
            if ranks is not None:
                fix.check(request.setting, ranks)
            requests.append(request)
        except ValueError as error:
            raise FixError(f"{part.strip()}: {error}") from error
    _check_requests(requests)
    return requests


def _check_requests(requests: list[_FixRequest]) -> None:
    names = [request.fix.name for request in requests]
    if not requests:
        raise FixError("--fix is empty: expected NAME=VALUE,..., such as warmup=5ep,lr_rule=sqrt")
    if len(set(names)) < len(names):
        raise FixError(f"a fix is given twice in {','.join(names)}")
    for request in requests:
        if request.fix.attach is None:
            raise FixError(
                f"{request.fix.name} cannot be applied from outside; add it to the program:",
                f"\n{request.lines}",
            )
    optimizers = [request.fix.name for request in requests if request.fix.replaces_optimizer]
    if len(optimizers) > 1:
        raise FixError(f"{' and '.join(optimizers)} are optimizers: use only one")
    if optimizers and "lr_rule" in names:
        raise FixError(f"{optimizers[0]} sets its own learning rate: leave out lr_rule")


_MakeOptimizer = Callable[[type[torch.optim.Optimizer], Any, dict[str, Any]], torch.optim.Optimizer]


class _ModelDepth(threading.local):
    """Whether this thread is already inside a model."""

    inside = 0


def _held(params: Any) -> list[Any]:
    """Return parameters that can be read twice: generators, in groups too, would be empty then."""
    return [
        {**given, "params": list(given["params"])}
        if isinstance(given, dict) and isinstance(given.get("params"), Iterator)
        else given
        for given in params
    ]


def _base_rates(groups: list[dict[str, Any]]) -> list[float]:
    """Return the rate of each group before any scheduler changed it."""
    return [float(group.get("initial_lr", group.get("lr", math.nan))) for group in groups]


def _samples_of_epoch(loader: Any, ranks: int) -> int | None:
    """Return the samples that all ranks draw in one pass over a loader; None: it does not say."""
    try:
        batches: Any = loader.batch_sampler
        sampler: Any = loader.sampler
        if batches is None or loader.batch_size is not None:
            return len(sampler) * ranks
        # the program gave it, and torch a sampler of its own over the whole data set to the loader
        if type(batches) is BatchSampler:
            sampler = batches.sampler
            return len(sampler) * ranks
        if getattr(batches, "batch_size", None) is None:
            return len(sampler) if ranks == 1 else None
        # Accelerate can give each rank its part of each batch
        apart = 1 if getattr(batches, "split_batches", False) else ranks
        return len(batches) * int(batches.batch_size) * apart
    except Exception:
        return None  # a stream


def _has_its_rate(optimizer: torch.optim.Optimizer, outer: torch.optim.Optimizer | None) -> bool:
    """Return whether an optimizer has the rate of the one that steps it.

    It is made of that one's parameters, or that one copies its rate, as to master weights.
    """
    groups = outer.param_groups if outer is not None else []
    rates = [group["lr"] for group in groups if isinstance(group.get("lr"), float)]
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]][:1]
    return any(group.get("lr") in rates for group in optimizer.param_groups) or any(
        parameter is own[0] for group in groups if own for parameter in group["params"]
    )


class FixInjector:
    """The hooks of one training, patched into torch.

    Attributes:
        ranks: processes of the training.
    """

    def __init__(self, tell: ReportHook) -> None:
        """Look up the ranks of this training; ``attach`` does the rest."""
        self.ranks = ranks.place().world_size
        self._tell = tell
        self._texts: dict[str, str] = {}  # by fix, as the user wrote it
        self._errors: dict[str, str] = {}  # by fix
        self._idle: dict[str, str] = {}  # by fix that has changed nothing so far, why
        self._told_idle: set[str] = set()
        self._acting = ""  # the fix that is being attached
        self._models: list[tuple[str, Callable[[torch.nn.Module], None]]] = []
        self._outputs: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = []
        self._rates: list[tuple[str, Callable[[TrainingProgress], float]]] = []
        self._make: tuple[str, _MakeOptimizer] | None = None
        self._making = (
            False  # an optimizer in place of torch's, which may itself be made of torch's
        )
        self._hooks: list[RemovableHandle] = []  # on optimizers
        # the rates that new optimizers were made with, until their first update
        self._own_rates: weakref.WeakKeyDictionary[torch.optim.Optimizer, list[float]] = (
            weakref.WeakKeyDictionary()
        )
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._changed: dict[int, RateChanges] = {}
        self._depth = _ModelDepth()
        self._open = OpenSteps()
        self._outer: Callable[[], torch.optim.Optimizer | None] = lambda: None  # a weak reference
        self._factor = 1.0  # on the rates of its step
        self._updates = self._samples = self._before = 0
        self._rows = 0  # of models' inputs since the last update
        self._counted: int | None = 0  # samples that the recording had counted at that update
        # samples of an epoch, all ranks together: by iterator, and of the loader drawn from last
        self._epochs: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._last_loader: int | None = None
        self._epoch: int | None = None
        self._is_first = False  # no update was made since a new model was seen

    def attach(self, requests: list[_FixRequest], patches: Patches) -> Callable[[], None]:
        """Let the fixes register their hooks, and patch torch for these.

        Returns:
            A function that undoes everything except the patches.
        """
        for request in requests:
            self._acting = request.fix.name
            self._texts[request.fix.name] = request.text
            assert request.fix.attach is not None
            with self._guarded(request.fix.name):
                request.fix.attach(request.setting, self)
                self._tell(f"fix {request.fix.name}", True, request.text)
        self._patch_forward(patches)
        self._patch_loader(patches)
        if self._make is not None:
            for name in _REPLACED:
                self._patch_class(patches, name)
        self._hooks += [
            torch_optimizer.register_optimizer_step_pre_hook(self._before_update),
            torch_optimizer.register_optimizer_step_post_hook(self._after_update),
        ]

        def undo() -> None:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()

        return undo

    def optimizer(self, make: _MakeOptimizer) -> None:
        """Keep what makes an optimizer in place of torch's."""
        self._make = self._acting, make
        self._idle.setdefault(self._acting, "the program made no SGD, Adam or AdamW of torch.optim")

    def rate(self, factor: Callable[[TrainingProgress], float]) -> None:
        """Keep a factor on the rates of each update."""
        self._rates.append((self._acting, factor))
        self._idle.setdefault(self._acting, "no update of an optimizer was seen")

    def model(self, act: Callable[[torch.nn.Module], None]) -> None:
        """Keep what acts on each outermost model."""
        self._models.append((self._acting, act))
        self._idle.setdefault(self._acting, "no model was called in training")

    def output(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep what changes the output of each outermost forward."""
        self._outputs.append((self._acting, act))
        self._idle.setdefault(self._acting, "no model was called in training")

    @property
    def failed(self) -> dict[str, str]:
        """Return each fix that did not act, or only in part, with the reason."""
        return {**self._idle, **self._errors}

    @contextmanager
    def _guarded(self, fix: str) -> Iterator[None]:
        """End a fix that raises, and nothing else."""
        try:
            yield
        except Exception as error:
            reraise_of_handler()
            self._fail(fix, error)

    @contextmanager
    def _acts(self, fix: str) -> Iterator[None]:
        """Let a fix act, and note it, if there is something to change."""
        with self._guarded(fix):
            try:
                yield
            except NothingToChange as error:
                self._tell_idle(fix, str(error))
            else:
                self._acted(fix)

    def _acted(self, fix: str) -> None:
        self._idle.pop(fix, None)
        if fix in self._told_idle:
            self._told_idle.discard(fix)
            if fix not in self._errors:
                self._tell(f"fix {fix}", True, self._texts[fix])

    def _tell_idle(self, fix: str, why: str) -> None:
        """Say once why a fix has changed nothing so far; it may still act."""
        if fix in self._idle and fix not in self._told_idle:
            self._told_idle.add(fix)
            self._idle[fix] = why
            if fix not in self._errors:
                self._tell(f"fix {fix}", False, why)

    def _fail(self, fix: str, error: Exception) -> None:
        if fix not in self._errors:
            self._errors[fix] = str(error) or type(error).__name__
            self._tell(f"fix {fix}", False, self._errors[fix])

    def _patch_forward(self, patches: Patches) -> None:
        original = torch.nn.Module.__call__
        is_compiling, depth = torch.compiler.is_compiling, self._depth

        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if (
                is_compiling()
                or depth.inside
                or not (module.training and torch.is_grad_enabled())
                or in_backward()
            ):
                return original(module, *args, **kwargs)
            return self._forward(original, module, args, kwargs)

        hide_from_dynamo(__call__)
        patches.set(torch.nn.Module, "__call__", __call__)

    def _forward(self, original: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if not is_model(module):
            return original(module, *args, **kwargs)
        if module not in self._seen:
            self._seen.add(module)
            self._epoch, self._is_first = None, True
            for name, act in self._models:
                with self._acts(name):
                    act(module)
        if self._is_first and self._epoch is None:  # a call may come before there is a loader
            self._epoch = self._last_loader
        with fail_open:  # a dictionary of the program's own
            self._rows += rows(args, kwargs)
        self._depth.inside += 1
        try:
            output = original(module, *args, **kwargs)
        finally:
            self._depth.inside -= 1
        for name, change in self._outputs:
            with self._acts(name):
                if not isinstance(output, torch.Tensor) or not output.dim():
                    is_number = isinstance(output, torch.Tensor)
                    what = "a single number" if is_number else type(output).__name__
                    raise NothingToChange(
                        f"the model returns {what}, not one tensor with a row per sample"
                    )
                output = change(output)
        return output

    def _patch_loader(self, patches: Patches) -> None:
        original = DataLoader.__iter__
        iterators = getattr(sys.modules[TORCH.module], TORCH.base)
        draw = iterators.__next__

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            iterator = original(loader)
            with suppress(TypeError):  # one of the program's own, which takes no weak reference
                self._epochs[iterator] = _samples_of_epoch(loader, self.ranks)
            return iterator

        @functools.wraps(draw)
        def __next__(iterator: Any) -> Any:
            batch = draw(iterator)
            self._last_loader = self._epochs.get(iterator)
            return batch

        patches.set(DataLoader, "__iter__", __iter__)
        patches.set(iterators, "__next__", __next__)

    def _patch_class(self, patches: Patches, name: str) -> None:
        original = getattr(torch.optim, name)

        made_types: list[type] = []

        class Kind(ABCMeta):
            """The class of an optimizer that replaces one of torch.

            isinstance checks for torch's class still hold, and a class of the program may inherit
            from it and from an abstract class.
            """

            def __instancecheck__(cls, instance: object) -> bool:
                if cls is not replacement:
                    return super().__instancecheck__(instance)
                return isinstance(instance, original) or type(instance) in made_types

        def __new__(cls: type, params: Any = (), *args: Any, **kwargs: Any) -> Any:
            if (
                cls is not replacement
                or getattr(torch.optim, name) is not replacement
                or self._make is None
            ):
                return object.__new__(cls)  # a class of the program's own
            if self._making:
                return original(params, *args, **kwargs)
            fix, make = self._make
            params = _held(params)
            self._making = True
            try:
                usual = inspect.signature(original).parameters["lr"].default
                given = {**kwargs, **dict(zip(("lr",), args, strict=False))}
                optimizer = make(original, params, {"lr": usual, **given})
            except Exception as error:
                self._fail(fix, error)
                return original(params, *args, **kwargs)
            finally:
                self._making = False
            made_types.append(type(optimizer))
            self._acted(fix)
            self._own_rates[optimizer] = _base_rates(optimizer.param_groups)
            self._watch_loads(fix, optimizer)
            return optimizer

        replacement = Kind(
            name,
            (original,),
            {"__new__": __new__, "__module__": original.__module__, "__doc__": original.__doc__},
        )
        patches.set(torch.optim, name, replacement)

    def _watch_loads(self, fix: str, optimizer: torch.optim.Optimizer) -> None:
        """Say of a new optimizer that it lost its rate, if the program loads another one.

        That of a checkpoint that was made with the fix is the same.
        """

        def loading(into: torch.optim.Optimizer, state: dict[str, Any]) -> None:
            with self._guarded(fix):
                own, loaded = _base_rates(into.param_groups), _base_rates(state["param_groups"])
                if own != loaded:
                    raise ValueError(
                        f"the program loads the state of an optimizer, and with it the learning "
                        f"rate {loaded[0]:g} in place of {own[0]:g}: train from scratch"
                    )

        self._hooks.append(optimizer.register_load_state_dict_pre_hook(loading))

    def _see_that_its_rate_is_kept(self, optimizer: torch.optim.Optimizer) -> None:
        """Say of a new optimizer, at its first update, that the program sets its rates.

        A scheduler that multiplies the rate keeps the one that it starts from in the groups.
        """
        own = self._own_rates.pop(optimizer, None)
        if own is None or self._make is None:
            return
        now = _base_rates(optimizer.param_groups)
        with self._guarded(self._make[0]):
            for made, found in zip(own, now, strict=False):
                if made != found:
                    raise ValueError(
                        f"the program sets the learning rates itself: {found:g} in the first "
                        f"update, not {made:g}"
                    )

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        restore_rates(self._changed.pop(id(optimizer), []))  # the last update raised
        self._see_that_its_rate_is_kept(optimizer)
        if not self._open.begins(optimizer):
            if self._factor != 1.0 and not _has_its_rate(optimizer, self._outer()):
                self._changed[id(optimizer)] = multiply_rates(optimizer, self._factor)
            return
        if self._make is not None:
            kind = type(optimizer)
            self._tell_idle(
                self._make[0],
                f"the training's optimizer is {kind.__module__}.{kind.__qualname__}, not made as "
                f"torch.optim.SGD, Adam or AdamW",
            )
        self._count_samples()
        batch = (self._samples - self._before) * self.ranks
        progress = TrainingProgress(
            self._updates, self._before * self.ranks, self._epoch, batch, self.ranks
        )
        factor = 1.0
        for name, of in self._rates:
            with self._acts(name):
                factor *= of(progress)
        self._outer, self._factor = weakref.ref(optimizer), factor
        if factor != 1.0:
            self._changed[id(optimizer)] = multiply_rates(optimizer, factor)

    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        restore_rates(self._changed.pop(id(optimizer), []))
        if not self._open.ends(optimizer):
            return
        self._updates += 1
        self._before, self._is_first = self._samples, False

    def _count_samples(self) -> None:
        """Add the samples since the last update: those of loaders, or rows of models' inputs.

        A model may be called several times for a sample, and its input may not begin with them.
        """
        watch = recorder.convergence
        counted = None if watch is None else watch.samples_of_loaders
        if counted is None or self._counted is None:
            self._samples += self._rows
        else:
            self._samples += counted - self._counted
        self._counted, self._rows = counted, 0
