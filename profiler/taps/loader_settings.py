"""Settings of a loader as names and numbers: no data, no paths."""

import inspect
import sys
from contextlib import suppress
from typing import Any

import torch.multiprocessing
from torch.utils.data import BatchSampler, DataLoader, Subset
from torch.utils.data._utils.collate import default_collate, default_convert

from feedline.profiler.record.below_dispatch import below_function_modes
from feedline.profiler.record.recorder import unobserved
from feedline.profiler.taps import dataset_facts

_PLAIN = ("num_workers", "batch_size", "prefetch_factor", "in_order", "persistent_workers", "pin_memory", "drop_last", "timeout")


@below_function_modes
def settings(loader: Any) -> dict[str, object]:
    """Settings of a DataLoader; those that this torch does not have are left out."""
    found: dict[str, object] = {}
    for name in _PLAIN:
        value = getattr(loader, name, None)
        if isinstance(value, (bool, int, float)):
            found[name] = value
    collate = getattr(loader, "collate_fn", None)
    found["collate"] = "default" if collate in (default_collate, default_convert) else _name_of(collate)
    found["sampler"] = _name_of(sampler := getattr(loader, "sampler", None))
    if found["sampler"] not in ("none", "_InfiniteConstantSampler"):
        found["torchs_sampler"] = type(sampler).__module__.partition(".")[0] == "torch"
    if isinstance(replacement := getattr(sampler, "replacement", None), bool):
        found["replacement"] = replacement
    found["batch_sampler"] = _name_of(getattr(loader, "batch_sampler", None))
    dataset = getattr(loader, "dataset", None)
    found["dataset"] = _name_of(dataset)
    found["map_style"] = not isinstance(dataset, torch.utils.data.IterableDataset)
    found["whole_batches"] = found["batch_sampler"] == "none" or _fetches_batches(dataset)
    with suppress(Exception):  # exotic code: what it does stays unknown
        found.update(_of_code(loader, dataset))
    if type(loader) is not DataLoader:
        found["torchs_dispatch"] = _dispatches_as_torch(type(loader))
    if (samples := length(dataset)) is not None:
        found["dataset_samples"] = samples
    if (samples := epoch_samples(loader)) is not None:
        found["epoch_samples"] = samples
    if found.get("num_workers"):
        context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing
        found["start_method"] = context.get_start_method()
    return found


def _of_code(loader: Any, dataset: Any) -> dict[str, object]:
    """What the code of a dataset shows: where samples are made; of a stream, whether something tells its workers apart."""
    found: dict[str, object] = {"sample_code": code} if (code := dataset_facts.sample_code(dataset)) else {}
    if isinstance(dataset, torch.utils.data.IterableDataset) and getattr(loader, "worker_init_fn", None) is None:
        asks = dataset_facts.asks_for_worker(dataset)
        found |= {} if asks is None else {"asks_for_worker": asks}
    return found


def _dispatches_as_torch(kind: type) -> bool:
    """Whether a class of loaders leaves it to torch how batches are asked of workers and handed over."""
    names = ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation")
    return issubclass(kind, DataLoader) and all(getattr(kind, name, None) is getattr(DataLoader, name, None) for name in names)


def _fetches_batches(dataset: Any) -> bool:
    """Whether torch asks a dataset for all samples of a batch in one call."""
    while type(dataset) is Subset:  # which passes the call on, where it can
        dataset = dataset.dataset
    return hasattr(type(dataset), "__getitems__")


def epoch_samples(loader: Any) -> int | None:
    """Samples in one pass over a loader; None if a class of the program draws its batches."""
    batches: Any = getattr(loader, "batch_sampler", None)
    if type(batches) is not BatchSampler or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    drawn = length(batches.sampler)
    return None if drawn is None else drawn - drawn % batches.batch_size if batches.drop_last else drawn


def length(thing: Any) -> int | None:
    """Length of a dataset or a sampler; None if it has none, or if the program watches every call."""
    with unobserved():
        if sys.gettrace() is not None or sys.getprofile() is not None:
            return None
        try:
            return len(thing)
        except Exception:  # it has none, or the program's own raises
            return None


def _name_of(thing: Any) -> str:
    """Name of a function, or of an object's class."""
    if thing is None:
        return "none"
    return thing.__qualname__ if isinstance(thing, type) or inspect.isroutine(thing) else type(thing).__qualname__
