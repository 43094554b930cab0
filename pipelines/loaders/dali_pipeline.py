"""Common parts of the loaders based on a DALI pipeline."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedline.pipelines.loaders.protocol import Batch, Task
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import order, seed_of_rank
from feedline.pipelines.photo_check import check
from feedline.pipelines.translate import dali
from feedline.profiler.errors import DataError

_AHEAD = 4  # batches that DALI may have begun and not given yet


class DaliLoader:
    """A ``Loader`` that reads, decodes and augments in DALI, in threads of this process.

    Each epoch is a pipeline of its own over this rank's files in our order: DALI's own shuffling takes no seed per epoch, and its shards
    move on from epoch to epoch. Building one takes some 10 ms; it is part of the time to the first batch.

    Args:
        decoder: ``cpu``, or ``mixed``: decoded and augmented on the GPU.
    """

    samples: Samples | str = "DALI does not time its operators one by one"

    def __init__(self, task: Task, decoder: str) -> None:
        self.task = task
        self.decoder = decoder
        self.built = dali.build(task.recipe, decoder)
        self.missing = self.built.missing
        self._running: Iterator[Batch] | None = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self._end()
        self._running = self._epoch(number)
        return self._running

    def _epoch(self, number: int) -> Iterator[Batch]:
        from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

        indices = order(len(self.task.photos), self.task.settings, number)
        if not indices:  # more ranks than photos
            return
        given = 0
        pipeline = self._pipeline(indices, seed=seed_of_rank(self.task.settings) + number)
        try:
            for [made] in DALIGenericIterator(
                pipeline, ["images", "index"], reader_name="files", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=False
            ):
                given += len(made["index"])
                yield Batch(made["images"].to(self.task.settings.device), made["index"].flatten().long())
        except RuntimeError as error:
            ahead = indices[given : given + _AHEAD * self.task.settings.batch_size]
            raise DataError(f"DALI: {_culprit([self.task.photos.photos[index].path for index in ahead])}{reason(error)}") from error
        finally:
            end(pipeline)

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
            return dali.normalised(self.built.apply(encoded), self.built.does), index

        return read_and_augment(
            batch_size=settings.batch_size,
            num_threads=max(1, settings.workers),
            device_id=None if self.decoder == "cpu" else int(settings.device.partition(":")[2] or 0),
            seed=seed % 2**31,
        )

    def _end(self) -> None:
        if self._running is not None:
            self._running.close()  # type: ignore[attr-defined]
            self._running = None

    def close(self) -> None:
        self._end()


def end(pipeline: Any) -> None:
    """End a pipeline and its threads immediately.

    One that waits as garbage may be collected in a worker that was forked meanwhile, which then waits for threads that it does not have.
    """
    pipeline._shutdown()  # there is no public way


def _culprit(paths: list[str]) -> str:
    """The first of these files that Pillow cannot decode either, because DALI does not name the file."""
    bad = ((path, found.bad) for path in paths if (found := check(Path(path))).bad)
    return next((f"{path}: {why[1]}: " for path, why in bad if why), "")


def reason(error: RuntimeError) -> str:
    """The cause and file in DALI's message, without its C++ and Python stacks."""
    text = str(error)
    said = text.partition("encountered:")[2] or text
    said = said.partition("Stacktrace")[0].partition("Current pipeline object")[0].partition("C++ context")[0]
    return " ".join(said.split())
