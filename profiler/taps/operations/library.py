"""Library taps: which functions of a library are replaced, and the taps attached in this process.

A function that the program took before feedline could replace it, as by ``from cv2 import imread``,
is left alone: once another object has its name, the program could no longer pickle what holds it,
and a dataset that does could not be sent to a spawned worker.
"""

import functools
import gc
import multiprocessing
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FrameType, FunctionType, ModuleType
from typing import Any

from feedline.profiler import masks, message
from feedline.profiler.arrivals import arrivals
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.taps.operations.span import Size, spanned
from feedline.profiler.taps.patch import SKIPPED_FILE_SUFFIX, Patches


class _Unbound(staticmethod):
    """A wrapper of a built-in function.

    Like the built-in, it does not become a method when a class holds it. It is pickled as "whatever
    is there under that name", so that a worker, or a process without feedline, gets what it has
    there.
    """

    def __init__(self, function: Callable[..., Any], place: str) -> None:
        super().__init__(function)
        self.place = place

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return pkgutil.resolve_name, (self.place,)


_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def _held_outside(
    module: ModuleType, names: Sequence[str], wrappers: Iterable[Callable[..., Any]] = ()
) -> dict[str, str]:
    """Return the functions of a module that something outside installed libraries refers to.

    Each has its holder. Reference counts usually show quickly that nothing does. Only if they leave
    a doubt are all objects of the process searched, which takes 0.1 to 0.3 s once torch is
    imported.

    Args:
        module: that has the functions.
        names: of the functions.
        wrappers: what an earlier recording put in the place of these functions. They hold the
            originals, and count as the library's own.
    """
    package = module.__name__.partition(".")[0]
    own = _references(package, wrappers)
    inside = Counter(own)
    doubted = []
    builtins = [
        key for key, value in vars(module).items() if isinstance(value, BuiltinFunctionType)
    ]
    # The import system keeps a hidden copy of the names of some compiled modules: a reference that
    # all of its functions have.
    hidden = min(
        (sys.getrefcount(vars(module)[key]) - inside[id(vars(module)[key])] for key in builtins),
        default=1,
    )
    for name in names:
        usual = hidden if name in builtins else 1  # the argument of getrefcount
        if sys.getrefcount(vars(module)[name]) - inside[id(vars(module)[name])] > usual:
            doubted.append(name)
    if not doubted:
        return {}
    holders = _holders(tuple(vars(module)[name] for name in doubted), package, set(own))
    return {
        name: holder for name, holder in zip(doubted, holders, strict=True) if holder is not None
    }


def _references(package: str, wrappers: Iterable[Callable[..., Any]]) -> list[int]:
    """Return the ids of all objects that the wrappers and a package's globals refer to.

    Those in containers count too; one per reference.
    """
    modules = {
        id(module): module
        for name, module in list(sys.modules.items())
        if f"{name}.".startswith(f"{package}.")
    }
    for module in list(modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if isinstance(value, ModuleType) and f"{value.__name__}.".startswith(f"{package}."):
                modules.setdefault(id(value), value)
    ids: list[int] = []
    containers: dict[int, Any] = {}
    for module in modules.values():
        for value in list(getattr(module, "__dict__", {}).values()):
            ids.append(id(value))
            if isinstance(value, (set, frozenset, list, tuple, dict)):
                containers[id(value)] = value
    for wrapper in wrappers:
        for part in _parts(wrapper):
            ids.append(id(part))
            containers[id(part)] = part
    for container in containers.values():
        ids += map(id, _contents(container))
    return ids


def _parts(wrapper: Any) -> Iterator[dict[str, Any] | CellType]:
    """Yield the objects through which a wrapper refers to others.

    Functions of feedline that it calls count as well.
    """
    function = getattr(wrapper, "__func__", wrapper)
    yield vars(function)
    if function is not wrapper:
        yield vars(wrapper)
    for cell in function.__closure__ or ():
        yield cell
        inner = cell.cell_contents
        if isinstance(inner, FunctionType) and inner.__code__.co_filename.endswith(
            SKIPPED_FILE_SUFFIX
        ):
            yield from _parts(inner)


def _contents(container: Any) -> Iterable[Any]:
    if isinstance(container, CellType):
        return (container.cell_contents,)
    return container.values() if isinstance(container, dict) else container


def _holders(originals: tuple[Any, ...], package: str, own: set[int]) -> list[str | None]:
    """Return a holder of each function outside of installed libraries; None: there is none.

    Args:
        originals: functions; nothing of the caller's may hold them but this tuple. A list would be
            copied for the call of get_referrers, which from Python 3.13 on counts the copy as a
            holder.
        package: the library they belong to.
        own: ids of the objects whose references do not count.
    """
    holders: list[str | None] = [None] * len(originals)
    for holder in gc.get_referrers(*originals):
        if holder is originals or isinstance(holder, FrameType) or id(holder) in own:
            continue
        module = holder.get("__name__") if isinstance(holder, dict) else None
        if isinstance(module, str) and (
            f"{module}.".startswith(f"{package}.") or _INSTALLED.search(str(holder.get("__file__")))
        ):
            continue
        held = {id(value) for value in gc.get_referents(holder)}
        message = (
            f"module {module}"
            if isinstance(module, str)
            else f"an object of type {type(holder).__name__}"
        )
        holders = [
            message if id(original) in held else before
            for original, before in zip(originals, holders, strict=True)
        ]
    return holders


class _NotPossible(Exception):
    """No tap can see into this library.

    Attributes:
        why: the reason, and what records it instead.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class Library:
    """A library whose operations can be timed separately.

    Attributes:
        name: what reports call the hook.
        module: whose import makes ``install`` run.
        gives: what the hook shows, and what it cannot.
        install: puts the wrappers in.
        selftest: exercises the attached hook on a tiny input; returns None, or what failed.
    """

    name: str
    module: str
    gives: str
    install: "Callable[[Tap, ModuleType], None]"
    selftest: Callable[[], str | None]


#: module:name -> the wrapper that it was given last. Who took a wrapper by name keeps it when it is
#: taken out of the module. The next recording puts the same one back, so that pickle finds it under
#: its name again.
_given: dict[str, Callable[..., Any]] = {}


class Tap:
    """Puts wrappers into one library, and removes them again.

    Args:
        late: the library was imported before feedline attached, so other code may already refer to
            its functions.
    """

    def __init__(self, late: bool) -> None:
        self.patches = Patches()
        self.left: list[str] = []  # functions that were not replaced, and why
        self._late = late
        self._functions: list[tuple[ModuleType, str, Any, Any]] = []

    def method(
        self, owner: type, name: str, stage: Stage, size: Size, span: str | None = None
    ) -> None:
        """Replace a method in its class.

        ``span`` None: spans are named after the class of the instance.
        """
        self.patches.set(owner, name, spanned(vars(owner)[name], stage, size, span))

    def functions(self, module: ModuleType, names: Iterable[str], stage: Stage, size: Size) -> None:
        """Replace functions of a module.

        Pass names through ``free`` first: a function that was imported by name cannot be replaced.
        """
        prefix = module.__name__.partition(".")[0]
        for name in names:
            self.function(
                module, name, spanned(getattr(module, name), stage, size, f"{prefix}.{name}")
            )

    def function(self, module: ModuleType, name: str, wrapper: Callable[..., Any]) -> None:
        """Replace one function with a given wrapper. The wrapper of a built-in behaves like one."""
        original = getattr(module, name)
        place = f"{module.__name__}:{name}"
        before: Any = _given.get(place)
        if before is not None and getattr(before, "__func__", before).__wrapped__ is original:
            wrapper = before
        elif not isinstance(original, FunctionType):
            wrapper = _Unbound(wrapper, place)
        self.patches.set(module, name, wrapper)
        _given[place] = wrapper
        self._functions.append((module, name, wrapper, original))

    def free(self, module: ModuleType, names: Iterable[str]) -> list[str]:
        """Return the functions that this version of the library has and that may be replaced.

        Code that holds an original could no longer pickle it once another object has its name, and
        spawn workers are sent pickles. A worker itself sends none.
        """
        names = [name for name in names if name in vars(module)]
        if not self._late or multiprocessing.parent_process() is not None:
            return names
        held = _held_outside(
            module,
            names,
            [_given[place] for name in names if (place := f"{module.__name__}:{name}") in _given],
        )
        for name, holder in held.items():
            self.left.append(
                f"{module.__name__}.{name} was taken by {holder} before feedline could replace "
                f"it: not timed separately"
            )
        return [name for name in names if name not in held]

    def undo(self) -> None:
        """Restore the originals."""
        self.patches.undo()
        for module, name, wrapper, original in self._functions:
            # cv2 is first its compiled part, then a package with copies of its names
            now = sys.modules.get(module.__name__)
            if now is not None and vars(now).get(name) is wrapper:
                setattr(now, name, original)
        self._functions.clear()


class AttachedTaps:
    """The taps of some libraries, attached while at least one user needs them."""

    def __init__(self, libraries: Sequence[Library]) -> None:
        self._libraries = libraries
        self._users = 0
        self._report: ReportHook = lambda *_: None
        self._pid = 0  # who may call it: a process forked since is not the one that reports
        self._said: dict[str, tuple[bool, str]] = {}
        self._taps: dict[str, Tap] = {}
        self._awaited: dict[str, Callable[[], None]] = {}  # name -> what ends the waiting

    def attach(self, report: ReportHook) -> Callable[[], None]:
        """See ``operations.attach``."""
        self._users += 1
        self._report, self._pid = report, os.getpid()
        for library in self._libraries:
            if library.name in self._said:
                self._record_outcome(library, *self._said[library.name])
            elif library.module in sys.modules:
                self._install(library, sys.modules[library.module], late=True)
            elif library.name not in self._awaited:
                self._awaited[library.name] = arrivals.when_imported(
                    library.module, functools.partial(self._arrived, library)
                )
        undone: list[bool] = []

        def undo() -> None:
            if not undone:
                undone.append(True)
                self._detach()

        return undo

    def _arrived(self, library: Library, module: ModuleType) -> None:
        self._awaited.pop(library.name, None)
        self._install(library, module, late=False)

    def _install(self, library: Library, module: ModuleType, late: bool) -> None:
        tap = Tap(late)
        try:
            library.install(tap, module)
        except Exception as error:
            reraise_of_handler()
            tap.undo()
            self._record_outcome(
                library, False, error.why if isinstance(error, _NotPossible) else masks.error(error)
            )
        else:
            self._taps[library.name] = tap
            self._record_outcome(library, True, "; ".join([library.gives, *tap.left]))

    def _record_outcome(self, library: Library, attached: bool, why: str) -> None:
        self._said[library.name] = (attached, why)
        if os.getpid() == self._pid:
            with fail_open:
                self._report(library.name, attached, why)

    def _detach(self) -> None:
        self._users -= 1
        if self._users:
            return
        for tap in reversed(list(self._taps.values())):
            tap.undo()
        self._taps.clear()
        self._said.clear()
        for wait_no_more in self._awaited.values():
            wait_no_more()
        self._awaited.clear()


_COUNTERS = "its work appears in the counters of CPU time, run-queue delay and bytes"
_EVERYTHING = (
    f"open(...).read() is not replaced, because every import and log file goes through "
    f"it; {_COUNTERS}"
)


def _untapped(name: str, module: str, why: str) -> Library:
    def install(tap: Tap, module: ModuleType) -> None:
        raise _NotPossible(why)

    selftest: Callable[[], str | None] = lambda: why  # noqa: E731
    return Library(name, module, why, install, selftest)


UNTAPPED = (
    _untapped("open", "builtins", Message(_EVERYTHING, message.NOT_REPLACED)),
    _untapped(
        "lmdb",
        "lmdb",
        f"Transaction.get belongs to an immutable type and reads by page faults; {_COUNTERS}",
    ),
)
