"""What the program's own code of a dataset shows: where samples are made, whether a stream looks which worker it runs in, and which
attributes the program changes between passes. Names only, no data.
"""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.utils.data import ConcatDataset, IterDataPipe, Subset

from feedline.profiler import masks
from feedline.profiler.plain import is_name
from feedline.profiler.taps.making.timing import name_of

MAKES_SAMPLES = ("__getitems__", "__getitem__", "__iter__")
WORKER_INFO = "get_worker_info"
#: More codes, attributes or objects than these are not looked at: what they show stays unknown.
MOST_CODES, MOST_ATTRIBUTES, MOST_NAMED = 2_000, 200, 3
DEPTH = 2  # objects inside a dataset: a dataset that it wraps, its transforms
PLAIN = (bool, int, float, complex, str, bytes, type(None))
NOT_OPENED = (*PLAIN, list, tuple, dict, set, type, FunctionType, ModuleType, torch.Tensor)

Values = dict[str, object]  # attribute -> what tells one value from another


def innermost(dataset: Any) -> Any:
    """The dataset that torch's own wrappers pass calls on to."""
    while type(dataset) in (Subset, ConcatDataset):
        dataset = dataset.dataset if type(dataset) is Subset else dataset.datasets[0]
    return dataset


def sample_code(dataset: Any) -> str:
    """The function of the program that makes samples, ``Rows.__getitem__ (train.py:15)``; empty: it is a library's, or unknown."""
    kind = type(innermost(dataset))
    for name in MAKES_SAMPLES:
        code = getattr(inspect.unwrap(getattr(kind, name, None)), "__code__", None)
        if isinstance(code, CodeType) and not masks.library(code.co_filename):
            return name_of(code)
    return ""


def asks_for_worker(stream: Any) -> bool | None:
    """Whether the code of a stream asks which worker it runs in, as one must that splits itself between workers.

    None: unknown. There is too much code, or it is a graph of torch's data pipes, which the loader splits.
    """
    if isinstance(stream, IterDataPipe):
        return None
    seen: set[int] = set()
    for code in _codes(stream, seen, DEPTH):
        if WORKER_INFO in code.co_names:
            return True
        if len(seen) > MOST_CODES:
            return None
    return False


def _codes(thing: Any, seen: set[int], deeper: int) -> Iterator[CodeType]:
    """Codes of an object's class, of what these functions call in their modules, and of the objects that it holds."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    for kind in type(thing).__mro__:
        for member in () if _is_torchs(kind) else vars(kind).values():
            function = inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))
            if isinstance(function, FunctionType):
                yield from _called(function, seen)
    for held in _held(thing) if deeper else ():
        yield from _codes(held, seen, deeper - 1)


def _called(function: FunctionType, seen: set[int]) -> Iterator[CodeType]:
    """The code of a function, those inside it, and those of the functions of its module that they name."""
    if id(function.__code__) in seen:
        return
    seen.add(id(function.__code__))
    inside = [function.__code__]
    for code in inside:
        yield code
        inside += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            other = function.__globals__.get(name)
            if isinstance(other, FunctionType) and len(seen) <= MOST_CODES and not _is_torchs(other):
                yield from _called(other, seen)


def _is_torchs(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] == "torch"


def _held(thing: Any) -> list[Any]:
    """Objects that an object holds, also in a list or tuple: sources and steps of a pipeline."""
    values = list(_own(thing).values())[:MOST_ATTRIBUTES]
    listed = [one for value in values if type(value) in (list, tuple) for one in value[:MOST_NAMED]]
    return [one for one in (*values, *listed) if not isinstance(one, NOT_OPENED)]


def _own(thing: Any) -> dict[str, Any]:
    """Attributes of an object itself, without asking its class."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def attributes(dataset: Any) -> Values:
    """The attributes of a dataset, and of the objects that it holds, each with what changes if the program assigns to it."""
    found: Values = {"": id(dataset)}
    level = [("", innermost(dataset))]
    for _ in range(DEPTH):
        owned = [(f"{prefix}{name}", value) for prefix, thing in level for name, value in list(_own(thing).items())]
        if len(found) + len(owned) > MOST_ATTRIBUTES:
            break
        found.update((name, _token(value)) for name, value in owned)
        level = [(f"{name}.", value) for name, value in owned if not isinstance(value, NOT_OPENED)]
    return found


def _token(value: Any) -> object:
    if isinstance(value, PLAIN):
        return type(value), hash(value)
    length = len(value) if type(value) in (list, dict, set) else 0
    return id(value), length, value._version if type(value) is torch.Tensor and not value.is_inference() else 0


def changed(before: Values, after: Values) -> list[str]:
    """Attributes that are not what they were, such as ``epoch`` or ``transform.strength``; ``""`` is the dataset itself."""
    if before[""] != after[""]:
        return [""]
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [".".join(part if is_name(part) else masks.MASK for part in name.split(".")) for name in names[:MOST_NAMED]]
