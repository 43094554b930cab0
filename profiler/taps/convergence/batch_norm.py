"""Notes how many samples the batch norm layers of a training take their statistics from, in its first forwards."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

_FORWARDS = 64  # of one model that are looked at; its layers are counted again where their number is a power of two


class BatchNorms:
    """Looks at each model with batch norm in its first forwards in training, and then no more."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        self._looks: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, Any]] = weakref.WeakKeyDictionary()

    def begin(self, model: torch.nn.Module, most: int) -> None:
        """A model begins to train.

        Args:
            most: models that are described.
        """
        if len(self._found) < most and any(isinstance(part, _BatchNorm) for part in model.modules()):
            facts: dict[str, Any] = {"layers": 0, "synced": 0, "samples": 0, "gpu": False, "forwards": 0}
            self._found.append(facts)
            self._looks[model] = facts

    def forwarded(self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], handed_over: int) -> None:
        """A model has received a batch in training.

        Args:
            handed_over: samples of the last batch from a loader; 0: unknown. Where the input has fewer rows, they need not be samples (the
                two rows of a graph's edges), or the program divides the batch.
        """
        facts = self._looks.get(model)
        if facts is None:
            return
        facts["forwards"] += 1
        facts["samples"] = max(facts["samples"], max(rows(args, kwargs), handed_over) // _replicas(model))
        if not facts["forwards"] & (facts["forwards"] - 1):
            layers = [part for part in model.modules() if isinstance(part, _BatchNorm)]
            facts["synced"] = sum(_is_synced(layer) for layer in layers)
            facts["layers"] = sum(_uses_its_batch(layer) for layer in layers)
            facts["gpu"] = any(parameter.is_cuda for parameter in model.parameters())
        if facts["forwards"] >= _FORWARDS:
            del self._looks[model]

    @property
    def active(self) -> bool:
        """Whether a model is still looked at."""
        return bool(self._looks)

    def found(self) -> list[dict[str, object]]:
        """The models with batch norm, for the manifest."""
        return [{key: value for key, value in facts.items() if key != "forwards"} for facts in self._found]


def _is_synced(layer: _BatchNorm) -> bool:
    """Whether a layer takes its statistics over all ranks: torch's SyncBatchNorm, or one of a library."""
    return "sync" in type(layer).__name__.lower()


def _uses_its_batch(layer: _BatchNorm) -> bool:
    """Whether a layer normalizes with the statistics of this rank's batch: it is not frozen, and not meant to look at less."""
    whole = not _is_synced(layer) and not hasattr(layer, "ghost")
    return whole and (layer.training or not layer.track_running_stats or layer.running_mean is None)


def _replicas(model: torch.nn.Module) -> int:
    """Copies of a model that share a batch."""
    return max(1, len(model.device_ids)) if isinstance(model, torch.nn.DataParallel) else 1


def rows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Rows of the first tensor in a model's input, or the length of a list of tensors, such as images of different sizes."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim():
            return int(value.shape[0])
        if isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
            return len(value)
    return 0
