"""Finds references to a library's functions that were taken before feedline could replace them, as by ``from cv2 import imread``."""

import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, CellType, FrameType, FunctionType, ModuleType
from typing import Any

from feedline.profiler.taps.patch import PASSED_BY

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def taken(module: ModuleType, names: Sequence[str], wrappers: Iterable[Callable[..., Any]] = ()) -> dict[str, str]:
    """Those of a module's functions that are referenced from outside installed libraries, each with its holder.

    Reference counts usually show quickly that nothing does. Only if they leave a doubt are all objects of the process searched, which takes
    0.1 to 0.3 s once torch is imported.

    Args:
        wrappers: what an earlier recording put in the place of these functions. They hold the originals, and count as the library's own.
    """
    package = module.__name__.partition(".")[0]
    own = _references(package, wrappers)
    inside = Counter(own)
    doubted = []
    builtins = [key for key, value in vars(module).items() if isinstance(value, BuiltinFunctionType)]
    # The import system keeps a hidden copy of the names of some compiled modules: a reference that all of its functions have.
    hidden = min((sys.getrefcount(vars(module)[key]) - inside[id(vars(module)[key])] for key in builtins), default=1)
    for name in names:
        usual = hidden if name in builtins else 1  # the argument of getrefcount
        if sys.getrefcount(vars(module)[name]) - inside[id(vars(module)[name])] > usual:
            doubted.append(name)
    if not doubted:
        return {}
    found = _holders(tuple(vars(module)[name] for name in doubted), package, set(own))
    return {name: holder for name, holder in zip(doubted, found, strict=True) if holder is not None}


def _references(package: str, wrappers: Iterable[Callable[..., Any]]) -> list[int]:
    """Ids of all objects referenced by the globals of a package's modules (also in containers), and by the wrappers; one per reference."""
    modules = {id(module): module for name, module in list(sys.modules.items()) if f"{name}.".startswith(f"{package}.")}
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
        ids += map(id, contents(container))
    return ids


def _parts(wrapper: Any) -> Iterator[dict[str, Any] | CellType]:
    """The objects through which a wrapper, and the functions of feedline that it calls, refer to others."""
    function = getattr(wrapper, "__func__", wrapper)
    yield vars(function)
    if function is not wrapper:
        yield vars(wrapper)
    for cell in function.__closure__ or ():
        yield cell
        inner = cell.cell_contents
        if isinstance(inner, FunctionType) and inner.__code__.co_filename.endswith(PASSED_BY):
            yield from _parts(inner)


def contents(container: Any) -> Iterable[Any]:
    if isinstance(container, CellType):
        return (container.cell_contents,)
    return container.values() if isinstance(container, dict) else container


def _holders(originals: tuple[Any, ...], package: str, own: set[int]) -> list[str | None]:
    """For each function, a holder outside of installed libraries; None if there is none.

    Args:
        originals: functions; nothing of the caller's may hold them but this tuple. A list would be copied for the call of get_referrers,
            which from Python 3.13 on counts the copy as a holder.
        package: the library they belong to.
        own: ids of the objects whose references do not count.
    """
    found: list[str | None] = [None] * len(originals)
    for holder in gc.get_referrers(*originals):
        if holder is originals or isinstance(holder, FrameType) or id(holder) in own:
            continue
        module = holder.get("__name__") if isinstance(holder, dict) else None
        if isinstance(module, str) and (f"{module}.".startswith(f"{package}.") or _INSTALLED.search(str(holder.get("__file__")))):
            continue
        held = {id(value) for value in gc.get_referents(holder)}
        message = f"module {module}" if isinstance(module, str) else f"an object of type {type(holder).__name__}"
        found = [message if id(original) in held else before for original, before in zip(originals, found, strict=True)]
    return found
