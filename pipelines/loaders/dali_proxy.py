"""A DataLoader whose workers read files, and one DALI pipeline in the main process that decodes and augments them on the GPU.

Written after nvidia/dali/plugin/pytorch/experimental/proxy of DALI 2.4: worker processes send the bytes of a batch to a thread of the main
process that runs the pipeline, so that only one process holds a CUDA context.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from feedline.pipelines.loaders.dali_pipeline import end, reason
from feedline.pipelines.loaders.protocol import Batch, LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import Batches, last_line
from feedline.pipelines.translate import dali
from feedline.pipelines.translate.recipe import Built
from feedline.profiler.errors import DataError
from feedline.profiler.pool import sheltered


class _Encoded(Dataset[tuple[Any, int]]):
    """Maps an index to (what stands for DALI's output, index)."""

    def __init__(self, paths: list[str], proxy: Any) -> None:
        self.paths, self.proxy = paths, proxy

    def __getitem__(self, index: int) -> tuple[Any, int]:
        try:
            data: npt.NDArray[np.uint8] = np.fromfile(self.paths[index], np.uint8)
        except OSError as error:
            raise DataError(f"{self.paths[index]} cannot be read ({error.strerror})") from error
        return self.proxy(data), index


class ProxyLoader:
    """A ``Loader`` with worker processes, a DALI server in a thread, and a GPU.

    Args:
        decoder: ``mixed``; with ``cpu`` everything but the GPU's part can be tried without one.
    """

    samples: Samples | str = "DALI does not time its operators one by one"

    def __init__(self, task: Task, decoder: str = "mixed") -> None:
        from nvidia.dali.plugin.pytorch.experimental import proxy

        self.settings = settings = task.settings
        built = dali.build(task.recipe, decoder)
        self.missing = built.missing
        self._pipeline = pipeline(task, built, decoder)
        self._server = proxy.DALIServer(self._pipeline)
        self._batches = Batches(len(task.photos), settings)
        self._loader = proxy.DataLoader(
            self._server,
            _Encoded([photo.path for photo in task.photos.photos], self._server.proxy),
            batch_sampler=self._batches,
            num_workers=max(1, settings.workers),  # its iterator knows no other
            persistent_workers=True,
            generator=torch.Generator().manual_seed(seed_of_rank(settings)),
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self._batches.epoch = number
        try:
            with sheltered():
                received = iter(self._loader)
            for images, index in received:
                yield Batch(images.to(self.settings.device), index)
        except DataError as error:
            raise DataError(last_line(error)) from None
        except RuntimeError as error:
            raise DataError(f"DALI: {reason(error)}") from error

    def close(self) -> None:
        workers = getattr(self._loader, "_iterator", None)
        if workers is not None:
            workers._shutdown_workers()  # there is no public way to end persistent workers before they are garbage
        self._server.stop_thread()
        end(self._pipeline)


def pipeline(task: Task, built: Built, decoder: str) -> Any:
    """Decodes and augments what the workers send in; batches may be smaller than the largest."""
    from nvidia.dali import fn, pipeline_def

    settings = task.settings

    @pipeline_def
    def augment() -> Any:
        encoded = fn.external_source(name="encoded", no_copy=True)
        return dali.normalised(built.apply(encoded), built.does)

    return augment(
        batch_size=settings.batch_size,
        num_threads=max(1, settings.workers),
        device_id=None if decoder == "cpu" else int(settings.device.partition(":")[2] or 0),
        seed=seed_of_rank(settings) % 2**31,
        prefetch_queue_depth=2 * max(1, settings.workers),
    )


KIND = LoaderKind("dali-proxy", "DataLoader reads, one DALI pipeline does the rest on the GPU", needs("nvidia.dali", gpu=True), ProxyLoader)
