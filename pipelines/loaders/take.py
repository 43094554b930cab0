"""A compared loader for use in a training, with the same code that was measured."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from feedline.pipelines.loaders import LOADERS
from feedline.pipelines.loaders.protocol import LoaderSettings, LoadTask
from feedline.pipelines.photos import scan, scan_once
from feedline.pipelines.translate import recipe
from feedline.profiler.printable import printable


class ComparedLoader:
    """A loader of `feedline compare` for a training.

    Each iteration is one epoch of (images, labels), newly shuffled and augmented. images: float32
    [n, 3, h, w], the output of the transform, on the device. labels: int64 [n], on the same device;
    ``classes`` names them. If torch.distributed is initialized, each rank gets its own part of the
    data, and all ranks get equally many batches. Files that the comparison leaves out, such as broken
    and CMYK images, are skipped, with a warning that names the first one.

    To know these files, every start decodes each file once, in every rank. That takes milliseconds
    of CPU time per photograph, or minutes for a million of them. With ``scan_file``, one rank of a
    machine does so once, until the data changes.

    Args:
        name: of the loader, as `feedline compare` shows it.
        data: image folder with one subfolder per class.
        transform: the training's torchvision transform.
        workers: processes, or threads if the loader uses threads.
        device: ``cpu`` or ``cuda:0``; None: this process's current GPU if there is one, else the
            CPU.
        seed: of the order and the random parameters.
        scan_file: keeps which files are used; made if it is missing. Data of another path needs
            another one.

    Raises:
        ValueError: the loader is unknown or cannot run here; the message says why.
        DataError: the folder contains no usable image.
        OutputError: ``scan_file`` cannot be written, or feedline did not write it.
    """

    def __init__(
        self,
        name: str,
        data: str,
        transform: Callable[[Any], torch.Tensor],
        batch_size: int = 32,
        workers: int = 2,
        device: str | None = None,
        seed: int = 0,
        scan_file: str | None = None,
    ) -> None:
        """Scan the folder, and make the loader."""
        kind = next((kind for kind in LOADERS if kind.name == name), None)
        if kind is None:
            raise ValueError(
                f"unknown loader {name!r}; the loaders are "
                f"{', '.join(kind.name for kind in LOADERS)}"
            )
        device = device or _current_device()
        why = kind.refuses(device)
        if why is not None:
            raise ValueError(f"{name} {why}")
        photos = scan(Path(data)) if scan_file is None else scan_once(Path(data), Path(scan_file))
        if left_out := [problem.path for problem in photos.problems if problem.left_out]:
            more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
            warnings.warn(
                printable(f"{left_out[0]}{more}: not used, see `feedline compare`"), stacklevel=2
            )
        rank, ranks = _place()
        self.classes = photos.classes
        self._labels = torch.tensor([photo.label for photo in photos.photos])
        self._batches = -(-(len(photos) // ranks) // batch_size)
        self._device, self._epoch = device, 0
        self._loader = kind.make(
            LoadTask(
                photos,
                recipe.read_recipe(transform),
                LoaderSettings(batch_size, workers, seed, rank, ranks, device),
                transform,
            )
        )

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._batches

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the next epoch."""
        number, self._epoch = self._epoch, self._epoch + 1
        for _, batch in zip(range(self._batches), self._loader.epoch(number)):
            yield batch.images, self._labels[batch.index].to(self._device)

    def close(self) -> None:
        """End processes and threads. Not needed at the end of a program."""
        self._loader.close()


def _current_device() -> str:
    """Return the GPU that the process has chosen, which differs between ranks, or the CPU."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"


def _place() -> tuple[int, int]:
    """Return the rank and how many there are."""
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if ready else (0, 1)
