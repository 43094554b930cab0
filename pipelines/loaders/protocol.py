"""The interface of every loader that is compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.photos import Photos
from feedline.pipelines.translate.recipe import Recipe


@dataclass(frozen=True)
class LoadedBatch:
    """What a training step receives.

    Attributes:
        images: [n, 3, h, w], float32 normalised as the user's transforms do, on
            ``LoaderSettings.device``. A loader that ships uint8 finishes on the device before it
            hands a batch over, so that all are equal to the model.
        index: int64 [n] on the CPU: each sample's place in ``Photos.photos``; the class is
            ``photos[i].label``.
    """

    images: torch.Tensor
    index: torch.Tensor


@dataclass(frozen=True)
class LoaderSettings:
    """How to load.

    Attributes:
        workers: worker processes, or threads where the loader has threads.
        seed: of the order and of random transforms; the same seed, rank and epoch give the same
            order.
        rank, world_size: this process sees every world_size-th part; no sample is repeated or
            dropped, the last batch may be smaller.
        device: ``cpu`` or ``cuda:0``.
        shuffle: off, samples come in the order of the folder.
    """

    batch_size: int = 32
    workers: int = 2
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    device: str = "cpu"
    shuffle: bool = True

    @property
    def rank_seed(self) -> int:
        """The seed of the random transforms, different for every rank."""
        return self.seed * 1_000_003 + self.rank

    def epoch_order(self, samples: int, epoch: int) -> list[int]:
        """Return the samples of this rank in an epoch, in the order that all loaders share.

        All ranks shuffle alike, with a generator of their own that depends on seed and epoch, and
        each takes every ``world_size``-th sample: over all ranks each sample comes exactly once, so
        that some ranks have one more than others. Nothing is padded.

        Args:
            samples: of the whole dataset.
            epoch: any number; each has an order of its own.
        """
        if not self.shuffle:
            return list(range(self.rank, samples, self.world_size))
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        return torch.randperm(samples, generator=generator)[self.rank :: self.world_size].tolist()

    def epoch_batches(self, samples: int, epoch: int) -> list[list[int]]:
        """Split ``epoch_order`` into batches; the last one may be smaller."""
        order = self.epoch_order(samples, epoch)
        return [
            order[start : start + self.batch_size]
            for start in range(0, len(order), self.batch_size)
        ]


@dataclass(frozen=True)
class LoadTask:
    """What to load: the same for all loaders.

    Attributes:
        transform: the user's own torchvision transform, PIL image -> tensor; None: ``recipe`` is
            all there is.
        recipe: the same as a list of operations.
    """

    photos: Photos
    recipe: Recipe
    settings: LoaderSettings = field(default_factory=LoaderSettings)
    transform: Callable[[Any], torch.Tensor] | None = None


class ReadyLoader(Protocol):
    """A loader that is ready to run, created by a ``LoaderKind``."""

    missing: tuple[str, ...]  #: operations of the recipe that it cannot do and leaves out
    #: its steps one by one, for timing them, or why they cannot be called apart
    samples: ImageSamples | str

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        """Yield all batches of one epoch of this rank."""

    def close(self) -> None:
        """End processes and threads. A closed loader is not used again."""


@dataclass(frozen=True)
class LoaderKind:
    """A kind of loader, as in the list of loaders/__init__.py.

    Attributes:
        name: short, for tables: ``v2 uint8``.
        about: what it does, one line.
        refuses: why it cannot run for this device (``cpu`` or ``cuda:0``) on this machine, or None:
            it can. Never raises.
        make: makes the loader. Raises MissingDependency.
    """

    name: str
    about: str
    refuses: Callable[[str], str | None]
    make: Callable[[LoadTask], ReadyLoader]
