"""Settings of a loader as names and numbers: no data, no paths.

The program's own code of a dataset shows where samples are made, whether a stream looks which
worker it runs in, and which attributes the program changes between passes.
"""

import dis
import inspect
import sys
from functools import partial
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset
from torch.utils.data._utils.collate import default_collate, default_convert

from feedline.profiler import masks
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.masks import is_name
from feedline.profiler.record.recorder import unobserved
from feedline.profiler.taps.source_names import name_of
from feedline.profiler.torch_internals import below_function_modes

_PLAIN = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "in_order",
    "persistent_workers",
    "pin_memory",
    "drop_last",
    "timeout",
)
# from here on, a number stands for no end (sys.maxsize), and readers of the manifest refuse it
ENDLESS = 1 << 53
_STREAM_LIBRARIES = ("webdataset", "datasets", "litdata", "streaming", "torchdata")


@below_function_modes
def settings(loader: Any) -> dict[str, object]:
    """Return the settings of a DataLoader; those that this torch does not have are left out.

    Classes of the program may answer anything, or raise: what is known by then is returned.
    """
    facts: dict[str, object] = {}
    with fail_open:
        _find_settings(loader, facts)
    return facts


def _find_settings(loader: Any, facts: dict[str, object]) -> None:
    """Add the settings one after another. Raises what the program's classes raise."""
    for name in _PLAIN:
        value = getattr(loader, name, None)
        if isinstance(value, (bool, int, float)):
            facts[name] = value
    collate = getattr(loader, "collate_fn", None)
    facts["collate"] = (
        "default" if collate in (default_collate, default_convert) else _name_of(collate)
    )
    facts["sampler"] = _name_of(sampler := getattr(loader, "sampler", None))
    if facts["sampler"] not in ("none", "_InfiniteConstantSampler"):
        facts["torchs_sampler"] = type(sampler).__module__.partition(".")[0] == "torch"
    if isinstance(replacement := getattr(sampler, "replacement", None), bool):
        facts["replacement"] = replacement
    facts["batch_sampler"] = _name_of(getattr(loader, "batch_sampler", None))
    dataset = getattr(loader, "dataset", None)
    facts["dataset"] = _name_of(dataset)
    facts["map_style"] = not isinstance(dataset, torch.utils.data.IterableDataset)
    if library := _stream_library(dataset):
        facts["dataset_library"] = library
        with fail_open:  # how many shards it has stays unknown
            facts.update(_shards(dataset))
    elif wrapped := next(filter(None, map(_stream_library, _held(dataset))), ""):
        facts["wrapped_library"] = wrapped
    facts["whole_batches"] = facts["batch_sampler"] == "none" or _fetches_batches(dataset)
    with fail_open:  # exotic code: what it does stays unknown
        facts.update(_of_code(loader, dataset))
    if type(loader) is not DataLoader:
        facts["torchs_dispatch"] = _dispatches_as_torch(type(loader))
    # torch never asks a stream for its length, which may count the lines of its files
    if facts["map_style"] and (samples := length(dataset)) is not None:
        facts["dataset_samples"] = samples
    if (samples := _epoch_samples(loader)) is not None:
        facts["epoch_samples"] = samples
    if facts.get("num_workers"):
        context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing
        facts["start_method"] = context.get_start_method()


def _stream_library(dataset: Any) -> str:
    """Return the library of streams that a data set is of; empty: none of those that are known."""
    module = type(dataset).__module__  # a class may have made a property of it
    library = module.partition(".")[0] if isinstance(module, str) else ""
    return library if library in _STREAM_LIBRARIES else ""


def _shards(stream: Any) -> dict[str, object]:
    """Return the shards of a library's stream, and whether they are drawn with replacement."""
    if type(count := getattr(stream, "num_shards", None)) is int:  # Hugging Face
        return {"dataset_shards": count} if 0 <= count < ENDLESS else {}
    source = (getattr(stream, "pipeline", None) or [None])[0]  # webdataset
    drawn: dict[str, object] = (
        {"resampled": True} if type(source).__name__ == "ResampledShards" else {}
    )
    urls = getattr(source, "urls", None)
    return {**drawn, "dataset_shards": len(urls)} if isinstance(urls, (list, tuple)) else drawn


def _of_code(loader: Any, dataset: Any) -> dict[str, object]:
    """Return what the code of a dataset shows: where samples are made.

    Of a stream, it is also whether something tells its workers apart.
    """
    facts: dict[str, object] = {"sample_code": code} if (code := _sample_code(dataset)) else {}
    if (
        isinstance(dataset, torch.utils.data.IterableDataset)
        and getattr(loader, "worker_init_fn", None) is None
    ):
        asks = _asks_for_worker(dataset)
        facts |= {} if asks is None else {"asks_for_worker": asks}
    return facts


def _dispatches_as_torch(kind: type) -> bool:
    """Return whether a class of loaders leaves the dispatch of batches to torch.

    It is how they are asked of workers and handed over.
    """
    names = ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation")
    return issubclass(kind, DataLoader) and all(
        getattr(kind, name, None) is getattr(DataLoader, name, None) for name in names
    )


def _fetches_batches(dataset: Any) -> bool:
    """Return whether torch asks a dataset for all samples of a batch in one call."""
    while type(dataset) is Subset:  # which passes the call on, where it can
        dataset = dataset.dataset
    return hasattr(type(dataset), "__getitems__")


def _epoch_samples(loader: Any) -> int | None:
    """Return the samples in one pass over a loader.

    None: a class of the program draws its batches.
    """
    batches: Any = getattr(loader, "batch_sampler", None)
    if type(batches) is not BatchSampler or isinstance(
        loader.dataset, torch.utils.data.IterableDataset
    ):
        return None
    drawn = drawn_length(batches.sampler)
    return (
        None
        if drawn is None
        else drawn - drawn % batches.batch_size
        if batches.drop_last
        else drawn
    )


def drawn_length(sampler: Any) -> int | None:
    """Return how many samples a sampler draws.

    None: it has no length, or asking may draw samples, as with a sampler that makes its batches to
    count them. torch itself never asks.
    """
    tells = getattr(type(sampler), "__len__", None)
    module = str(getattr(tells, "__module__", ""))
    if module.partition(".")[0] not in _LIBRARIES and not _only_reads(
        getattr(tells, "__code__", None)
    ):
        return None
    return length(sampler)


_LIBRARIES = frozenset(("torch", "transformers", "accelerate", "lightning", "pytorch_lightning"))
_COUNTING = frozenset(("len", "int", "max", "min", "round", "ceil", "floor"))


def _only_reads(code: CodeType | None) -> bool:
    """Tell whether a function of Python calls nothing but len, rounding and the like."""
    if code is None:
        return False
    steps = list(dis.get_instructions(code))
    calls = sum(step.opname.startswith("CALL") for step in steps)
    plain = sum(step.opname.startswith("LOAD") and step.argval in _COUNTING for step in steps)
    return calls <= plain and not any(step.opname.startswith("FOR_ITER") for step in steps)


def length(thing: Any) -> int | None:
    """Return the length of a dataset or a sampler.

    None: it has none, is endless (``sys.maxsize``), or the program watches every call.
    """
    with unobserved():
        if sys.gettrace() is not None or sys.getprofile() is not None:
            return None
        try:
            return known if (known := len(thing)) < ENDLESS else None
        except Exception:  # it has none, or the program's own raises
            reraise_of_handler()
            return None


def _name_of(thing: Any) -> str:
    """Return the name of a function, or of an object's class."""
    if thing is None:
        return "none"
    return (
        thing.__qualname__
        if isinstance(thing, type) or inspect.isroutine(thing)
        else type(thing).__qualname__
    )


_MAKES_SAMPLES = ("__getitems__", "__getitem__", "__iter__")
_WORKER_INFO = "get_worker_info"
#: More functions and objects, attributes, or parts of a list than these are not looked at: what
#: they show stays unknown.
_MOST_LOOKED_AT, _MOST_ATTRIBUTES, _MOST_LISTED = 2_000, 200, 20
_MOST_NAMED = 3  # attributes
# characters or bytes: of a longer value, another object counts as another value
_MOST_HASHED = 4096
_DEPTH = 2  # objects inside a dataset: a dataset that it wraps, its transforms
_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))
_NOT_OPENED = (*_PLAIN_VALUES, list, tuple, dict, set, type, FunctionType, ModuleType, torch.Tensor)

Values = dict[str, object]  # attribute -> what tells one value from another


def _innermost(dataset: Any) -> Any:
    """Return the dataset that torch's own wrappers pass calls on to."""
    while type(dataset) in (Subset, ConcatDataset):
        dataset = dataset.dataset if type(dataset) is Subset else dataset.datasets[0]
    return dataset


def _sample_code(dataset: Any) -> str:
    """Return the function of the program that makes samples, ``Rows.__getitem__ (train.py:15)``.

    Empty: it is a library's, or unknown.
    """
    kind = type(_innermost(dataset))
    for function in [getattr(kind, name) for name in _MAKES_SAMPLES if hasattr(kind, name)]:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if isinstance(code, CodeType) and not masks.library(code.co_filename):
            return name_of(code)
    return ""


def _asks_for_worker(stream: Any) -> bool | None:
    """Return whether the code of a stream asks which worker it runs in.

    One that splits itself between workers must. None: unknown. There is too much code, or it is a
    graph of torch's data pipes, which the loader splits.
    """
    if _is(stream, getattr(torch.utils.data, "IterDataPipe", ())):
        return None
    left: list[tuple[Any, int]] = [(stream, _DEPTH)]
    seen: set[int] = set()
    while left:
        thing, deeper = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if len(seen) > _MOST_LOOKED_AT:
            return None
        if _is(thing, FunctionType):
            codes = _codes(thing)
            if any(_WORKER_INFO in code.co_names for code in codes):
                return True
            left += [(used, deeper) for used in _used(thing, codes)]
        else:
            kinds = thing.__mro__ if _is(thing, type) else type(thing).__mro__
            left += [
                (function, deeper)
                for kind in kinds
                if not _is_torchs(kind)
                for function in _methods(kind)
            ]
            if deeper and not _is(thing, type):
                left += [(held, deeper - 1) for held in _held(thing)]
    return False


def _codes(function: FunctionType) -> list[CodeType]:
    """Return the code of a function, and of those inside it."""
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def _methods(kind: type) -> list[FunctionType]:
    members = [
        member.fget
        if type(member) is property
        else member.__func__
        if type(member) in (staticmethod, classmethod)
        else member
        for member in vars(kind).values()
    ]
    return [inspect.unwrap(member) for member in members if isinstance(member, FunctionType)]


def _used(function: FunctionType, codes: list[CodeType]) -> list[Any]:
    """Return the functions and classes of the program that its code names.

    Those of the function's own library count, and functions that it encloses.
    """
    names = {name for code in codes for name in code.co_names}
    places = [function.__globals__]
    places += [
        vars(module) for name in names if _is(module := function.__globals__.get(name), ModuleType)
    ]
    referenced = [place[name] for name in names for place in places if name in place]
    enclosed = [content for cell in function.__closure__ or () for content in _content(cell)]
    own = _library(function)
    return [
        thing
        for thing in (*referenced, *enclosed)
        if _is(thing, (FunctionType, type)) and _library(thing) in ("", own)
    ]


def _content(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # empty
        return []


def _library(thing: FunctionType | type) -> str:
    """Return the installed library in which a function or class is defined; empty: the program."""
    if isinstance(thing, FunctionType):
        return masks.library(thing.__code__.co_filename)
    module = sys.modules.get(str(thing.__module__))
    return (
        ""
        if thing.__module__ == "__main__"
        else masks.library(str(getattr(module, "__file__", "") or "<frozen>"))
    )


def _is_torchs(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in ("torch", "builtins", "typing", "abc")


def _held(thing: Any) -> list[Any]:
    """Return the objects and functions that an object holds, also in a list or tuple.

    They are sources and steps of a pipeline.
    """
    values = [
        *list(_own(thing).values())[:_MOST_ATTRIBUTES],
        *([thing.func] if _is(thing, partial) else []),
    ]
    listed = [
        held for value in values if type(value) in (list, tuple) for held in value[:_MOST_LISTED]
    ]
    return [
        held for held in (*values, *listed) if _is(held, FunctionType) or not _is(held, _NOT_OPENED)
    ]


def _is(thing: Any, kinds: type | tuple[type, ...]) -> bool:
    """Tell ``isinstance`` by the object's own type.

    A proxy that is asked for its class may load what it stands for.
    """
    return issubclass(type(thing), kinds)


def _own(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object itself, without asking its class."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def attributes(dataset: Any) -> Values | None:
    """Return the attributes of a dataset, and of the objects that it holds.

    Each has what changes if it is assigned to. None: there are too many.
    """
    tokens: Values = {"": id(dataset)}
    level = [("", _innermost(dataset))]
    if len(_own(level[0][1])) > _MOST_ATTRIBUTES:
        return None
    for _ in range(_DEPTH):
        owned = [
            (f"{prefix}{name}", value)
            for prefix, thing in level
            for name, value in list(_own(thing).items())
        ]
        if len(tokens) + len(owned) > _MOST_ATTRIBUTES:
            break
        tokens.update((name, _token(value)) for name, value in owned)
        level = [(f"{name}.", value) for name, value in owned if not _is(value, _NOT_OPENED)]
    return tokens


def _token(value: Any) -> object:
    if type(value) in _PLAIN_VALUES and not (
        type(value) in (str, bytes) and len(value) > _MOST_HASHED
    ):
        return type(value), hash(value)
    length = len(value) if type(value) in (list, dict, set, str, bytes) else 0
    return id(value), length, _version(value)


def _version(value: Any) -> int:
    """Return a tensor's version; 0: of another value, or of one whose memory workers share."""
    if type(value) is not torch.Tensor or value.is_inference():
        return 0
    dense = value.layout is torch.strided and value.is_cpu
    return 0 if dense and value.untyped_storage().is_shared() else value._version


def changed(before: Values, after: Values) -> list[str]:
    """Return the attributes that are not what they were.

    Such are ``epoch`` or ``transform.strength``; ``""`` is the dataset itself.
    """
    if before[""] != after[""]:
        return [""]
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [
        ".".join(part if is_name(part) else masks.MASK for part in name.split("."))
        for name in names[:_MOST_NAMED]
    ]
