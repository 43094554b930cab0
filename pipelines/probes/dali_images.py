"""DALI's operations on decoded images, in a pipeline with one thread and an external source."""

from collections.abc import Iterator, Sequence
from typing import Any

from feedline.pipelines.probes.measure import Refused, see_gpu
from feedline.pipelines.translate import dali
from feedline.pipelines.translate.missing import load
from feedline.pipelines.translate.operations import Operation

_BATCH = 16


class Changed:
    """Call it with uint8 arrays [h, w, 3]; it gives DALI's tensors, one by one, on the pipeline's device."""

    def __init__(self, operations: Sequence[Operation], device: str) -> None:
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali import types as dali_types

        from feedline.pipelines.translate.dali_calls import Images
        from feedline.pipelines.translate.dali_random import perform

        types: Any = dali_types  # what its stubs leave out

        @pipeline_def
        def changing() -> Any:
            given = fn.external_source(name="images", dtype=types.UINT8, ndim=3, layout="HWC", no_copy=True)
            shape = given.shape()
            images = Images(given if device == "cpu" else given.gpu(), shape[0], shape[1])
            for operation in operations:
                images = perform(images, operation)
            return images.node

        device_id = None if device == "cpu" else 0
        self._pipeline = changing(batch_size=_BATCH, num_threads=1, device_id=device_id, prefetch_queue_depth=1, seed=0)
        self._pipeline.build()

    def __call__(self, images: Sequence[Any]) -> Iterator[Any]:
        for at in range(0, len(images), _BATCH):
            batch = list(images[at : at + _BATCH])
            self._pipeline.feed_input("images", batch)
            (made,) = self._pipeline.run()
            yield from (made[number] for number in range(len(batch)))


def make(operations: Sequence[Operation], device: str) -> Changed:
    """Some operations, one after the other.

    Raises:
        Refused: DALI cannot do one of them, or has no GPU. MissingDependency: DALI is not installed.
    """
    load("nvidia.dali.fn")
    if device == "gpu":
        see_gpu()
    if refused := [f"{operation.name}: {why}" for operation in operations if (why := dali.refuses(operation))]:
        raise Refused("; ".join(refused))
    return Changed(operations, device)
