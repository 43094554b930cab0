"""Replaces attributes of modules and classes in other libraries, and restores them.

A replacement has the name, module, documentation, signature and source of its original, and pickles as it. Three ways, by what is replaced:

    a function or method      ``set``     another function, which is found under the name that it is pickled with
    a built-in method         ``set``     ``_Descriptor``: equal to the method, and pickled as it
    a function that programs  ``enter``   the same function with other code in it: earlier references see it too, and can be pickled
    import by name

Frames of replacements do not count where ``warnings.warn(stacklevel=...)`` looks for the caller (``skip_in_warnings``).
"""

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any, NamedTuple

from feedline.profiler.errors import SKIPPED_FILE_SUFFIX

_MISSING = object()


class _Patch(NamedTuple):
    """A replaced attribute."""

    owner: Any
    name: str
    old: Any  # _MISSING: inherited
    new: Any


class Patches:
    """Remembers replaced attributes.

    ``undo`` restores the originals in reverse order, except where other code has replaced ours
    since.
    """

    _all: "weakref.WeakSet[Patches]" = weakref.WeakSet()

    def __init__(self) -> None:
        self._done: list[_Patch] = []
        self._entered: list[tuple[FunctionType, FunctionType, CodeType]] = []
        Patches._all.add(self)

    def set(self, owner: Any, name: str, new: Any) -> None:
        """Set ``owner.name = new``; an inherited attribute is shadowed and later unshadowed."""
        old = vars(owner).get(name, _MISSING)
        if isinstance(owner, (type, ModuleType)):
            new = _mimic_signature(owner, name, new)
        setattr(owner, name, new)
        self._done.append(_Patch(owner, name, old, vars(owner)[name]))

    def enter(self, function: Any, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Make a function do what ``make(original)`` returns, wherever it is referenced."""
        twin = _twin_of(function)
        before = function.__code__
        function.__code__ = _code_that_calls(skip_in_warnings(make(twin)), before)
        # torch.compile traces the original
        function.__dict__.update(__wrapped__=twin, _torchdynamo_inline=twin)
        self._entered.append((function, twin, function.__code__))

    def undo(self) -> None:
        for owner, name, old, new in reversed(self._done):
            if vars(owner).get(name, _MISSING) is not new:
                continue
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._done.clear()
        for function, twin, code in reversed(self._entered):
            if function.__code__ is code:
                function.__code__ = twin.__code__
                function.__dict__.clear()
                function.__dict__.update(twin.__dict__)
        self._entered.clear()

    @classmethod
    def standing(cls) -> Iterator[_Patch]:
        """Return everything currently replaced in this process, by any tap."""
        for patches in list(cls._all):
            yield from patches._done
            for function, twin, _ in patches._entered:
                yield _Patch(sys.modules[function.__module__], function.__name__, twin, function)


class _Descriptor:
    """Replacement of a built-in method: equal to it, and pickled as it.

    Args:
        original: ``torch.Tensor.to``.
        call: is called in its place.
    """

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self.__objclass__, self.__text_signature__ = (
            original.__objclass__,
            original.__text_signature__,
        )
        self._call: Any = skip_in_warnings(call)
        self._call.__name__, self._call.__qualname__, self._call.__doc__ = (
            original.__name__,
            original.__qualname__,
            original.__doc__,
        )

    @property
    def __module__(self) -> str:  # type: ignore[override]
        raise AttributeError("a built-in method has none")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        original = self.__wrapped__  # type: ignore[attr-defined]
        return bool(original == (other.__wrapped__ if isinstance(other, _Descriptor) else other))  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.__wrapped__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__reduce_ex__(protocol)  # type: ignore[attr-defined]


def _mimic_signature(owner: Any, name: str, new: Any) -> Any:
    """Make a function look like the one it replaces."""
    original = getattr(owner, name, None)
    if isinstance(original, MethodDescriptorType) and isinstance(new, FunctionType):
        return _Descriptor(original, new)
    function = new.__func__ if isinstance(new, (staticmethod, classmethod)) else new
    original = getattr(original, "__func__", original)  # of a class method
    if not isinstance(function, FunctionType) or not callable(original):
        return new
    own = dict(vars(function))
    functools.update_wrapper(function, original)
    # bound: its signature lacks the class
    if isinstance(new, classmethod) and isinstance(original, BuiltinFunctionType):
        function.__wrapped__ = inspect.getattr_static(owner, name)  # type: ignore[attr-defined]
    function.__dict__.update({key: value for key, value in own.items() if key != "__wrapped__"})
    place = _found_at(original) if isinstance(original, FunctionType) else None
    # else it is there already
    if place is None or place != (owner, name) and getattr(*place, None) is not new:
        function.__module__, function.__qualname__ = _place_of(owner, name)
    skip_in_warnings(function)
    return new


def _found_at(function: FunctionType) -> tuple[Any, str] | None:
    """Return where pickle looks a function up: the module or class, and its name there."""
    *path, name = function.__qualname__.split(".")
    place: Any = sys.modules.get(function.__module__)
    for part in path:
        place = getattr(place, part, None)
    return None if place is None else (place, name)


def _place_of(owner: Any, name: str) -> tuple[str, str]:
    """Return the module and qualified name of an attribute."""
    return (
        (owner.__name__, name)
        if isinstance(owner, ModuleType)
        else (owner.__module__, f"{owner.__qualname__}.{name}")
    )


def skip_in_warnings(function: Any) -> Any:
    """Exclude the frames of a function when ``warnings.warn`` looks for its caller.

    Returns the function.
    """
    code = function.__code__
    if not code.co_filename.endswith(SKIPPED_FILE_SUFFIX):
        function.__code__ = code.replace(co_filename=code.co_filename + SKIPPED_FILE_SUFFIX)
    return function


def _twin_of(function: FunctionType) -> FunctionType:
    """Return a new function with the same code."""
    twin = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    wrapped = vars(function).get("__wrapped__")
    functools.update_wrapper(twin, function)
    del twin.__wrapped__  # type: ignore[attr-defined]
    if wrapped is not None:
        twin.__wrapped__ = wrapped  # type: ignore[attr-defined]
    return twin


def _code_that_calls(called: Any, before: CodeType) -> CodeType:
    """Return code for a function that passes all arguments on.

    A function's code must keep its number of free variables.
    """
    free = before.co_freevars
    names = ", ".join(free)
    lines = [
        f"def make({names}):",
        "    def function(*args, **kwargs):",
        f"        if False: {names or None}",
        "        call = 'called'",
        "        return call(*args, **kwargs)",
        "    return function",
    ]
    made: dict[str, Any] = {}
    exec(compile("\n".join(lines), "", "exec"), made)
    code = made["make"](*free).__code__
    named: dict[str, Any] = (
        {"co_qualname": getattr(before, "co_qualname", None)} if sys.version_info >= (3, 11) else {}
    )
    return code.replace(
        co_consts=tuple(
            called if constant == "called" else constant for constant in code.co_consts
        ),
        co_name=before.co_name,
        co_filename=before.co_filename + SKIPPED_FILE_SUFFIX,
        co_firstlineno=before.co_firstlineno,
        **named,
    )
