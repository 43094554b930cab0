"""Loaders with DALI: on the CPU, with the GPU, and one pipeline behind a DataLoader.

``dali-cpu`` reads, decodes and augments in threads, and decodes only the region that a random crop
keeps. With ``dali-gpu`` the CPU reads JPEGs and starts decoding them; the GPU finishes and
augments.

``dali-proxy`` is written after nvidia/dali/plugin/pytorch/experimental/proxy of DALI 2.4: worker
processes send the bytes of a batch to a thread of the main process that runs the pipeline, so that
only one process holds a CUDA context.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import EpochBatches, end_workers, worker_message
from feedline.pipelines.photos import check_image
from feedline.pipelines.translate import to_dali
from feedline.pipelines.translate.recipe import Recipe, Translation
from feedline.pipelines.translate.to_dali import dali_refuses
from feedline.profiler.errors import DataError
from feedline.profiler.pool import sheltered

_MAX_BATCHES_AHEAD = 4  # batches that DALI may have begun and not given yet


class _DaliLoader:
    """A loader that reads, decodes and augments in DALI, in threads of this process.

    Each epoch is a pipeline of its own over this rank's files in our order: DALI's own shuffling
    takes no seed per epoch, and its shards move on from epoch to epoch. Building one takes some 10
    ms; it is part of the time to the first batch.

    Args:
        decoder: ``cpu``, or ``mixed``: decoded and augmented on the GPU.
    """

    samples: ImageSamples | str = "DALI does not time its operators one by one"

    def __init__(self, task: LoadTask, decoder: str) -> None:
        self.task = task
        self.decoder = decoder
        self.built = to_dali.build_dali(task.recipe, decoder)
        self.missing = self.built.missing
        self._running: Iterator[LoadedBatch] | None = None

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        self.close()
        self._running = self._epoch(number)
        return self._running

    def _epoch(self, number: int) -> Iterator[LoadedBatch]:
        from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

        indices = self.task.settings.epoch_order(len(self.task.photos), number)
        if not indices:  # more ranks than photos
            return
        returned = 0  # samples so far
        pipeline = self._pipeline(indices, seed=self.task.settings.rank_seed + number)
        try:
            for [batch] in DALIGenericIterator(
                pipeline,
                ["images", "index"],
                reader_name="files",
                last_batch_policy=LastBatchPolicy.PARTIAL,
                auto_reset=False,
            ):
                returned += len(batch["index"])
                yield LoadedBatch(
                    batch["images"].to(self.task.settings.device), batch["index"].flatten().long()
                )
        except RuntimeError as error:
            ahead = indices[
                returned : returned + _MAX_BATCHES_AHEAD * self.task.settings.batch_size
            ]
            paths = [self.task.photos.photos[index].path for index in ahead]
            raise DataError(f"DALI: {_culprit(paths)}{_dali_reason(error)}") from error
        finally:
            _end_pipeline(pipeline)

    def _pipeline(self, indices: list[int], seed: int) -> Any:
        from nvidia.dali import fn, pipeline_def

        settings, photos = self.task.settings, self.task.photos.photos

        @pipeline_def
        def read_and_augment() -> tuple[Any, Any]:
            encoded, index = fn.readers.file(
                name="files",
                files=[photos[index].path for index in indices],
                labels=indices,
                pad_last_batch=True,  # else the last batch would take its rest from the next epoch
            )
            return _normalise_in_pipeline(self.built.apply(encoded), self.built.does), index

        return read_and_augment(
            batch_size=settings.batch_size,
            num_threads=max(1, settings.workers),
            device_id=None
            if self.decoder == "cpu"
            else int(settings.device.partition(":")[2] or 0),
            seed=seed % 2**31,
        )

    def close(self) -> None:
        if self._running is not None:
            self._running.close()  # type: ignore[attr-defined]
            self._running = None


def _end_pipeline(pipeline: Any) -> None:
    """End a pipeline and its threads immediately.

    One that waits as garbage may be collected in a worker that was forked meanwhile, which then
    waits for threads that it does not have.
    """
    pipeline._shutdown()  # there is no public way


def _culprit(paths: list[str]) -> str:
    """Name the first of these files that Pillow cannot decode either: DALI does not name it."""
    for path in paths:
        if defect := check_image(Path(path)).bad:
            return f"{path}: {defect[1]}: "
    return ""


def _dali_reason(error: RuntimeError) -> str:
    """Return the cause and file in DALI's message, without its C++ and Python stacks."""
    text = str(error)
    cause = text.partition("encountered:")[2] or text
    for stack in ("Stacktrace", "Current pipeline object", "C++ context"):
        cause = cause.partition(stack)[0]
    return " ".join(cause.split())


class _EncodedFiles(Dataset[tuple[Any, int]]):
    """Maps an index to (what stands for DALI's output, index)."""

    def __init__(self, paths: list[str], proxy: Any) -> None:
        self.paths, self.proxy = paths, proxy

    def __getitem__(self, index: int) -> tuple[Any, int]:
        try:
            data: npt.NDArray[np.uint8] = np.fromfile(self.paths[index], np.uint8)
        except OSError as error:
            raise DataError(f"{self.paths[index]} cannot be read ({error.strerror})") from error
        return self.proxy(data), index


class _DaliProxyLoader:
    """A loader with worker processes, a DALI server in a thread, and a GPU.

    Args:
        decoder: ``mixed``; with ``cpu`` everything but the GPU's part can be tried without one.
    """

    samples: ImageSamples | str = "DALI does not time its operators one by one"

    def __init__(self, task: LoadTask, decoder: str = "mixed") -> None:
        from nvidia.dali.plugin.pytorch.experimental import proxy

        self.settings = settings = task.settings
        built = to_dali.build_dali(task.recipe, decoder)
        self.missing = built.missing
        self._pipeline = _proxy_pipeline(task, built, decoder)
        self._server = proxy.DALIServer(self._pipeline)
        self._batches = EpochBatches(len(task.photos), settings)
        self._loader = proxy.DataLoader(
            self._server,
            _EncodedFiles([photo.path for photo in task.photos.photos], self._server.proxy),
            batch_sampler=self._batches,
            num_workers=max(1, settings.workers),  # its iterator knows no other
            persistent_workers=True,
            generator=torch.Generator().manual_seed(settings.rank_seed),
        )

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        self._batches.epoch = number
        try:
            with sheltered():
                received = iter(self._loader)
            for images, index in received:
                yield LoadedBatch(images.to(self.settings.device), index)
        except DataError as error:
            raise DataError(worker_message(error)) from None
        except RuntimeError as error:
            raise DataError(f"DALI: {_dali_reason(error)}") from error

    def close(self) -> None:
        end_workers(self._loader)
        self._server.stop_thread()
        _end_pipeline(self._pipeline)


def _proxy_pipeline(task: LoadTask, built: Translation, decoder: str) -> Any:
    """Make the pipeline that decodes and augments what the workers send in.

    Batches may be smaller than the largest.
    """
    from nvidia.dali import fn, pipeline_def

    settings = task.settings

    @pipeline_def
    def augment() -> Any:
        encoded = fn.external_source(name="encoded", no_copy=True)
        return _normalise_in_pipeline(built.apply(encoded), built.does)

    return augment(
        batch_size=settings.batch_size,
        num_threads=max(1, settings.workers),
        device_id=None if decoder == "cpu" else int(settings.device.partition(":")[2] or 0),
        seed=settings.rank_seed % 2**31,
        prefetch_queue_depth=2 * max(1, settings.workers),
    )


LOADERS = (
    LoaderKind(
        "dali-cpu",
        "DALI on the CPU, in threads",
        needs("nvidia.dali"),
        lambda task: _DaliLoader(task, "cpu"),
    ),
    LoaderKind(
        "dali-gpu",
        "DALI decodes and augments on the GPU",
        needs("nvidia.dali", gpu=True),
        lambda task: _DaliLoader(task, "mixed"),
    ),
    LoaderKind(
        "dali-proxy",
        "DataLoader reads, one DALI pipeline does the rest on the GPU",
        needs("nvidia.dali", gpu=True),
        _DaliProxyLoader,
    ),
)


def _normalise_in_pipeline(images: Any, recipe: Recipe) -> Any:
    """Scale, normalise and erase, inside a pipeline definition.

    Args:
        images: uint8 HWC DataNode, all of one size.
        recipe: the part of it that DALI does.

    Returns:
        float32 CHW DataNode. Operations that ``build_dali`` names as missing are left out.
    """
    from nvidia.dali import fn, types

    from feedline.pipelines.translate.dali_calls import erase

    mean, std = _per_channel(recipe.mean or (0.0,)), _per_channel(recipe.std or (1.0,))
    scaled = [value * 255 for value in mean], [value * 255 for value in std]
    tensor = fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout="CHW", mean=scaled[0], std=scaled[1]
    )
    size = recipe.output_size
    for operation in recipe.erasing:
        if dali_refuses(operation) is not None:
            continue
        assert operation.value is not None
        fill = _per_channel(operation.value)
        # torchvision erases before it normalises: the same as after, with the value normalised
        if not operation.normalised:
            fill = [(value - m) / s for value, m, s in zip(fill, mean, std, strict=True)]
        tensor = erase(tensor, operation, size, fill)
    return tensor


def _per_channel(values: tuple[float, ...]) -> list[float]:
    return list(values * 3 if len(values) == 1 else values)
