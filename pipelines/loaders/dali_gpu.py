"""DALI with the GPU: the CPU reads JPEGs and starts decoding them, the GPU finishes decoding and augments."""

from feedline.pipelines.loaders.dali_pipeline import DaliLoader
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs


def make(task: Task) -> DaliLoader:
    return DaliLoader(task, "mixed")


KIND = LoaderKind("dali-gpu", "DALI decodes and augments on the GPU", needs("nvidia.dali", gpu=True), make)
