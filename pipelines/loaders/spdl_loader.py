"""SPDL: threads of this process read, decode and augment; nothing is copied between processes.

It decodes with its own decoder where FFmpeg's shared libraries are, else with libjpeg-turbo.
Threads help as far as the libraries give up Python's lock: they do while decoding and resizing.
"""

import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch

from feedline.pipelines.libraries import installed, needs
from feedline.pipelines.loaders import simplejpeg_loaders
from feedline.pipelines.loaders.image_samples import ImageSamples
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind, LoadTask
from feedline.pipelines.loaders.workers import FinishOnDevice
from feedline.pipelines.translate import to_torchvision
from feedline.profiler.errors import MissingDependency

_ABOUT_SPDL = "SPDL: threads, {}, torchvision v2 on uint8"

_LoadedSample = tuple[torch.Tensor, int]


class SpdlLoader:
    """A loader with one ``spdl.pipeline`` per epoch.

    Which thread gets which sample is random, and so are random transforms.
    """

    def __init__(self, task: LoadTask) -> None:
        """Translate the recipe, and choose a decoder."""
        self.settings = task.settings
        built = to_torchvision.build_v2(task.recipe, task.settings.rank_seed)
        self.missing = built.missing
        self.samples: ImageSamples | str = ImageSamples(
            task.photos, decode := _decoder(), built.apply
        )
        self.about = _ABOUT_SPDL.format(
            "its own decoder (FFmpeg)"
            if decode is _with_ffmpeg
            else "libjpeg-turbo: it finds no FFmpeg"
        )
        self._samples = self.samples
        self._finish = FinishOnDevice(task)
        self._running: Any = None

    def epoch(self, number: int) -> Iterator[LoadedBatch]:
        """Yield all batches of one epoch of this rank."""
        from spdl.pipeline import PipelineBuilder

        self.close()
        threads = max(1, self.settings.workers)
        builder = (
            PipelineBuilder[Any, Any]()
            .add_source(self.settings.epoch_order(len(self._samples), number))
            .pipe(self._load, concurrency=threads, output_order="input", name="load")
            .aggregate(self.settings.batch_size)
            .pipe(_batch_or_error, name="collate")
            .add_sink(2)
        )
        self._running = pipeline = builder.build(num_threads=threads)
        try:
            with pipeline.auto_stop():
                for batch in pipeline:
                    if isinstance(batch, Exception):
                        raise batch
                    images, index = batch
                    yield LoadedBatch(self.finish(images), index)
        finally:
            self._running = None

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """Turn uint8 [n, 3, h, w] into float32 on the device."""
        return self._finish(images.to(self.settings.device))

    def _load(self, index: int) -> _LoadedSample | Exception:
        try:
            return self._samples[index]
        except Exception as error:  # handed on as a result: SPDL drops what fails, and logs it
            return error

    def close(self) -> None:
        """End the threads of the running epoch."""
        if self._running is not None:
            self._running.stop()
            self._running = None


def _batch_or_error(
    samples: list[_LoadedSample | Exception],
) -> tuple[torch.Tensor, torch.Tensor] | Exception:
    """Collate a batch, or return the error of one of its samples."""
    loaded = [sample for sample in samples if not isinstance(sample, Exception)]
    try:
        return next(
            (sample for sample in samples if isinstance(sample, Exception)), None
        ) or collate_samples(loaded)
    except Exception as error:
        return error


def collate_samples(samples: list[_LoadedSample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack images and indices."""
    return torch.stack([image for image, _ in samples]), torch.tensor(
        [index for _, index in samples]
    )


def _with_ffmpeg(data: bytes) -> torch.Tensor:
    """Decode with SPDL's decoder to uint8 [3, h, w]."""
    from spdl.io import load_image, to_torch

    return to_torch(load_image(data)).permute(2, 0, 1)


def _decoder() -> Callable[[bytes], torch.Tensor]:
    """Choose SPDL's own decoder, or libjpeg-turbo.

    Raises:
        MissingDependency: neither is there.
    """
    if _has_ffmpeg():
        return _with_ffmpeg
    if installed("simplejpeg"):
        return simplejpeg_loaders.decode_to_tensor
    raise MissingDependency(
        "SPDL finds no FFmpeg, and simplejpeg is not installed: pip install simplejpeg"
    )


@functools.cache
def _has_ffmpeg() -> bool:
    """Tell whether SPDL's decoder works.

    It is tested on an image, because its libraries are only loaded then.
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (16, 8), (200, 100, 50)).save(buffer, "JPEG")
    try:
        return _with_ffmpeg(buffer.getvalue()).shape == (3, 8, 16)
    except Exception:  # whatever its loader of libraries raises
        return False


LOADERS = (
    LoaderKind(
        "spdl",
        _ABOUT_SPDL.format("its own decoder or libjpeg-turbo"),
        needs("spdl.pipeline"),
        SpdlLoader,
    ),
)
