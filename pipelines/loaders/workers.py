"""Common parts of the loaders based on torch's DataLoader with worker processes."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderSettings, LoadTask
from feedline.pipelines.random_states import OwnRandomState, TransformRng
from feedline.pipelines.translate.to_torchvision import finish
from feedline.profiler.errors import FeedlineError
from feedline.profiler.pool import sheltered

_Collate = Callable[[list[tuple[torch.Tensor, int]]], Any]


class EpochBatches(Sampler[list[int]]):
    """The batches of indices of one epoch."""

    def __init__(self, samples: int, settings: LoaderSettings) -> None:
        """Begin with epoch 0; set ``epoch`` before each."""
        self.samples, self.settings = samples, settings
        self.epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of ``epoch``."""
        return iter(self.settings.epoch_batches(self.samples, self.epoch))


class WorkerLoader:
    """A loader of one ``ImageSamples``, a DataLoader with worker processes.

    Workers stay from epoch to epoch. Their seeds come from a generator of the loader's own; without
    workers, the global generators are put back after every batch.

    Args:
        finish: what the workers sent, on the device -> float32 images; None: they are float32
            already.
        collate: a list of samples -> what the workers send and their indices; None: torch's own.
        prepare: called in every worker before its first sample.
    """

    def __init__(
        self,
        task: LoadTask,
        samples: ImageSamples,
        missing: tuple[str, ...] = (),
        finish: Callable[[Any], torch.Tensor] | None = None,
        collate: _Collate | None = None,
        prepare: Callable[[int], None] | None = None,
    ) -> None:
        """Make the DataLoader; workers start with the first epoch."""
        settings = task.settings
        self.samples: ImageSamples | str = samples
        self.missing = missing
        self.device = settings.device
        self.collate = collate
        self.finish = finish or _unchanged
        self._batches = EpochBatches(len(samples), settings)
        self._aside = nullcontext() if settings.workers else OwnRandomState(settings.rank_seed)
        self._loader: DataLoader[Any] | None = DataLoader(
            samples,
            batch_sampler=self._batches,
            num_workers=settings.workers,
            collate_fn=collate,
            pin_memory=settings.device != "cpu",
            persistent_workers=settings.workers > 0,
            worker_init_fn=prepare,
            generator=torch.Generator().manual_seed(settings.rank_seed),
        )

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        """Yield all batches of one epoch of this rank.

        Raises:
            FeedlineError: a worker raised it.
        """
        if self._loader is None:
            raise ValueError("the loader is closed")
        self._batches.epoch = number
        with sheltered():
            received = iter(self._loader)
        while True:
            try:
                with self._aside:
                    images, index = next(received)
            except StopIteration:
                return
            except FeedlineError as error:
                raise type(error)(worker_message(error)) from None
            images = to_device(images, self.device)
            yield LoadedBatch(self.finish(images), index)

    def close(self) -> None:
        """End the workers."""
        loader, self._loader = self._loader, None
        end_workers(loader)


def end_workers(loader: Any) -> None:
    """End the persistent workers of a DataLoader, if it has any."""
    workers = getattr(loader, "_iterator", None)
    if workers is not None:
        # there is no public way to end persistent workers before they are garbage
        workers._shutdown_workers()


def _unchanged(images: torch.Tensor) -> torch.Tensor:
    return images


def worker_message(error: FeedlineError) -> str:
    """Return an error's message without the traceback that the DataLoader prepends."""
    return (
        str(error)
        .strip()
        .splitlines()[-1]
        .removeprefix(f"{type(error).__module__}.{type(error).__name__}: ")
    )


def to_device(images: Any, device: str) -> Any:
    """Copy a tensor, or the tensors of a list, from pinned memory."""
    if device == "cpu":
        return images
    if isinstance(images, list):
        return [to_device(image, device) for image in images]
    return images.to(device, non_blocking=True) if isinstance(images, torch.Tensor) else images


class FinishOnDevice:
    """Turns uint8 [n, 3, h, w] into float32, normalised, on the same device."""

    def __init__(self, task: LoadTask) -> None:
        """Keep the recipe, and make a generator for its erasing."""
        self.recipe = task.recipe
        self.dice = TransformRng(task.settings.rank_seed)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Scale, normalise and erase."""
        return finish(self.recipe, images, self.dice.here())
