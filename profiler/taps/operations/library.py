"""Describes which functions of a library are replaced."""

import multiprocessing
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.early import taken
from feedline.profiler.taps.operations.span import Size, Unbound, spanned
from feedline.profiler.taps.patch import Patches


class NotPossible(Exception):
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


#: module:name -> the wrapper that it was given last. Who took a wrapper by name keeps it when it is taken out of the module. The next
#: recording puts the same one back, so that pickle finds it under its name again.
_given: dict[str, Callable[..., Any]] = {}


class Tap:
    """Puts wrappers into one library, and removes them again.

    Args:
        late: the library was imported before feedline attached, so other code may already refer to its functions.
    """

    def __init__(self, late: bool) -> None:
        self.patches = Patches()
        self.left: list[str] = []  # functions that were not replaced, and why
        self._late = late
        self._functions: list[tuple[ModuleType, str, Any, Any]] = []

    def method(self, owner: type, name: str, stage: Stage, size: Size, span: str | None = None) -> None:
        """Replace a method in its class. ``span`` None: spans are named after the class of the instance."""
        self.patches.set(owner, name, spanned(vars(owner)[name], stage, size, span))

    def functions(self, module: ModuleType, names: Iterable[str], stage: Stage, size: Size) -> None:
        """Replace functions of a module. Pass names through ``free`` first: a function that was imported by name cannot be replaced."""
        prefix = module.__name__.partition(".")[0]
        for name in names:
            self.function(module, name, spanned(getattr(module, name), stage, size, f"{prefix}.{name}"))

    def function(self, module: ModuleType, name: str, wrapper: Callable[..., Any]) -> None:
        """Replace one function with a given wrapper. The wrapper of a built-in behaves like one."""
        original = getattr(module, name)
        place = f"{module.__name__}:{name}"
        before: Any = _given.get(place)
        if before is not None and getattr(before, "__func__", before).__wrapped__ is original:
            wrapper = before
        elif not isinstance(original, FunctionType):
            wrapper = Unbound(wrapper, place)
        self.patches.set(module, name, wrapper)
        _given[place] = wrapper
        self._functions.append((module, name, wrapper, original))

    def free(self, module: ModuleType, names: Iterable[str]) -> list[str]:
        """Those of the functions that this version of the library has and that may be replaced.

        Code that holds an original could no longer pickle it once another object has its name, and spawn workers are sent pickles. A
        worker itself sends none.
        """
        names = [name for name in names if name in vars(module)]
        if not self._late or multiprocessing.parent_process() is not None:
            return names
        held = taken(module, names, [_given[place] for name in names if (place := f"{module.__name__}:{name}") in _given])
        for name, holder in held.items():
            self.left.append(f"{module.__name__}.{name} was taken by {holder} before feedline could replace it: not timed separately")
        return [name for name in names if name not in held]

    def undo(self) -> None:
        """Restore the originals."""
        self.patches.undo()
        for module, name, wrapper, original in self._functions:
            now = sys.modules.get(module.__name__)  # cv2 is first its compiled part, then a package with copies of its names
            if now is not None and vars(now).get(name) is wrapper:
                setattr(now, name, original)
        self._functions.clear()
