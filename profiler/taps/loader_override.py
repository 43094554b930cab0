"""Changes arguments of the training's DataLoader without editing files: ``feedline run --set num_workers=4 train.py``.

    DataLoader.__init__        gets the changed arguments                                         LoaderOverride.changed
    DataLoader._get_iterator   a loader whose workers cannot start gets its own arguments back    LoaderOverride.guarded

What cannot be changed is told, and the training goes on unchanged.
"""

import ast
import functools
import inspect
import multiprocessing
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch.multiprocessing
from torch.utils.data import IterableDataset, SequentialSampler, get_worker_info

from feedline.profiler import masks
from feedline.profiler.errors import FixError
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.source_names import call_site

_WORKER_THREADS = "worker_threads"  # the one setting that is no argument
#: Arguments that torch refuses without workers -> what they are then.
_OF_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}

_Arguments = dict[str, Any]
_ReportOverride = Callable[[bool, str], None]  # whether it acted, and how or why not


class _Impossible(ValueError):
    """A loader cannot have these arguments; the message says why, without private words."""


class LoaderOverride:
    """Changes loaders that this process makes.

    Args:
        settings: argument -> value; _WORKER_THREADS is how many threads libraries may use in each
            worker.
        made_at: ``train.py:31``, the call that makes the loaders to change. "": those that draw in
            random order, and streams.
        report: called at first and after each loader that was meant.
        strict: raise where a loader cannot be changed, instead of going on.

    Attributes:
        failed: why a loader was not changed; "" if all were.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        made_at: str,
        report: _ReportOverride,
        strict: bool = False,
    ) -> None:
        self.settings, self.made_at, self.failed = dict(settings), made_at, ""
        self._report, self._strict, self._changes = report, strict, list[str]()
        self._own: weakref.WeakKeyDictionary[Any, _Arguments] = weakref.WeakKeyDictionary()

    def attach(self, kind: Any, patches: Patches) -> None:
        """Patch a class of loaders.

        Raises:
            AttributeError, ValueError: this version is built differently.
        """
        patches.set(kind, "__init__", self.changed(kind.__init__))
        patches.set(kind, "_get_iterator", self.guarded(kind._get_iterator))

    def report_to(self, report: _ReportOverride) -> None:
        """Say from now on to another, and say again how it is."""
        self._report = report
        self._say()

    def changed(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return what takes the place of a loader's ``__init__``."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            bound, own = None, _Arguments()
            with fail_open:  # a wrong call: torch says so
                bound = signature.bind(loader, *args, **kwargs)
                own = dict(bound.arguments)
                site = call_site(sys._getframe(1)).get("made_at")
                if get_worker_info() is not None or not self._is_meant(own, site):
                    bound = None
            if bound is None:
                return original(loader, *args, **kwargs)
            try:
                bound.arguments.clear()
                bound.arguments.update(_changed(own, self.settings, signature))
                original(*bound.args, **bound.kwargs)
            except Exception as error:
                reraise_of_handler()
                self._fail(error)
                return original(loader, *args, **kwargs)
            self._acted(loader, own, site)

        return __init__

    def guarded(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what takes the place of ``_get_iterator``.

        Where it raises for a changed loader, that loader gets its own arguments back.
        """

        @functools.wraps(original)
        def _get_iterator(loader: Any) -> Any:
            try:
                own = self._own.pop(loader, None)
            except TypeError:  # a subclass that cannot be hashed
                own = None
            if own is None:
                return original(loader)
            generator = (
                loader.generator if loader.generator is not None else torch.default_generator
            )
            state = generator.get_state()
            try:
                return original(loader)
            except Exception as error:
                reraise_of_handler()
                self._fail(error)
                _give_back(loader, own)
                generator.set_state(state)
                return original(loader)

        return _get_iterator

    def _is_meant(self, own: _Arguments, site: object) -> bool:
        return site == self.made_at if self.made_at else _draws_at_random(own)

    def _acted(self, loader: Any, own: _Arguments, site: object) -> None:
        with suppress(TypeError):  # a subclass that cannot be hashed
            self._own[loader] = {name: value for name, value in own.items() if value is not loader}
        now = ", ".join(
            f"{name}={value} (was {own.get(name, 'not set')})"
            for name, value in self.settings.items()
        )
        change = f"the training is changed: {now}" + (f", {site}" if site else "")
        if change not in self._changes:
            self._changes.append(change)
            self._say()

    def _fail(self, error: Exception) -> None:
        self.failed = str(error) if isinstance(error, _Impossible) else masks.error(error)
        self._say()
        if self._strict:
            raise FixError(f"--strict: the DataLoader cannot be changed: {self.failed}") from error

    def outcome(self) -> tuple[bool, str]:
        """Return whether all loaders that were meant are changed, and what was done or why not."""
        if self.failed:
            return False, self.failed
        if not self._changes:
            instead = "" if self.made_at else ": name its line with --set-at FILE:LINE"
            where = f"at {self.made_at}" if self.made_at else "that shuffles or reads a stream"
            return False, f"no DataLoader was made {where}{instead}"
        return True, "; ".join(self._changes)

    def _say(self) -> None:
        self._report(*self.outcome())


def _changed(
    own: _Arguments, settings: Mapping[str, Any], signature: inspect.Signature
) -> _Arguments:
    """Return the arguments to make a loader with: the program's own and the settings.

    Those that torch refuses without workers are left out.

    Raises:
        _Impossible: a loader cannot have them, or it would not be the same training.
    """
    given = dict(settings)
    threads = given.pop(_WORKER_THREADS, None)
    for name in given:
        if name not in signature.parameters:
            raise _Impossible(f"the DataLoader of this version has no argument {name}")
    workers, before = given.get("num_workers", own.get("num_workers", 0)), own.get("num_workers", 0)
    arguments = {**own, **given}
    if workers == 0:
        if needing := [name for name in _OF_WORKERS if given.get(name)]:
            raise _Impossible(f"{needing[0]} needs workers, and this DataLoader has num_workers=0")
        for name in _OF_WORKERS:
            arguments.pop(name, None)
    elif workers != before:
        _refuse_workers(arguments, before)
    if threads is not None and workers:
        then = own.get("worker_init_fn")
        arguments["worker_init_fn"] = (
            then if isinstance(then, _WorkerThreads) else _WorkerThreads(threads, then)
        )
    return {name: arguments[name] for name in signature.parameters if name in arguments}


def _refuse_workers(wanted: _Arguments, before: int) -> None:
    """Check that a loader can have another number of workers and still yields the same samples.

    Raises:
        Impossible: it cannot, or does not.
    """
    if wanted["num_workers"] > 1 >= before and isinstance(wanted.get("dataset"), IterableDataset):
        raise _Impossible(
            "its IterableDataset was read by one process only, so whether it divides its samples "
            "among workers is unknown: divide them "
            "with get_worker_info(), and record once with num_workers=2"
        )
    if before:
        return
    if multiprocessing.current_process().daemon:
        raise _Impossible("this process is a daemon of multiprocessing, which cannot start workers")
    if not _forks(wanted.get("multiprocessing_context")) and not _has_guard(
        getattr(sys.modules.get("__main__"), "__file__", None)
    ):
        raise _Impossible(
            "workers would run the script again, because it has no `if __name__ == '__main__':` "
            "and they are not started by fork"
        )


def _forks(context: Any) -> bool:
    """Return whether workers are forks; asking does not settle the start method."""
    method = (
        context
        if isinstance(context, str)
        else context.get_start_method()
        if context is not None
        else None
    )
    return (
        method
        or torch.multiprocessing.get_start_method(allow_none=True)
        or multiprocessing.get_all_start_methods()[0]
    ) == "fork"


def _has_guard(script: str | None) -> bool:
    """Return whether a script asks for ``__name__`` before it runs.

    Processes that import it do not run it.
    """
    if script is None:
        return True  # nothing to import
    try:
        with open(script, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.If)
        and any(
            isinstance(name, ast.Name) and name.id == "__name__" for name in ast.walk(node.test)
        )
        for node in tree.body
    )


def _draws_at_random(own: _Arguments) -> bool:
    """Return whether a loader is for training as far as its arguments tell.

    It shuffles, has a sampler that does, or reads a stream.
    """
    if isinstance(own.get("dataset"), IterableDataset):
        return True
    batches = own.get("batch_sampler")
    sampler = getattr(batches, "sampler", batches) if batches is not None else own.get("sampler")
    if sampler is None:
        return bool(own.get("shuffle"))
    return not isinstance(sampler, SequentialSampler) and bool(getattr(sampler, "shuffle", True))


def _give_back(loader: Any, own: _Arguments) -> None:
    """Set the attributes of a loader that is already made to what its own arguments make of them."""
    workers = own.get("num_workers", 0)
    attributes = {
        "num_workers": workers,
        "prefetch_factor": own.get("prefetch_factor") or (2 if workers else None),
        "persistent_workers": own.get("persistent_workers", False),
        "pin_memory": own.get("pin_memory", False),
        "timeout": own.get("timeout", 0),
        "in_order": own.get("in_order", True),
        "worker_init_fn": own.get("worker_init_fn"),
        "_DataLoader__multiprocessing_context": own.get("multiprocessing_context"),
    }
    for name in attributes.keys() & vars(loader).keys():
        object.__setattr__(loader, name, attributes[name])  # DataLoader.__setattr__ refuses some


class _WorkerThreads:
    """A ``worker_init_fn`` that limits the threads which libraries use in a worker.

    Spawned workers unpickle it.

    Args:
        threads: per library.
        then: the program's own ``worker_init_fn``.
    """

    def __init__(self, threads: int, then: Callable[[int], None] | None) -> None:
        self.threads, self.then = threads, then

    def __call__(self, worker: int) -> None:
        with fail_open:
            torch.set_num_threads(self.threads)
            if "cv2" in sys.modules:
                # 0: none beside the caller
                sys.modules["cv2"].setNumThreads(self.threads if self.threads > 1 else 0)
        if self.then is not None:
            self.then(worker)
