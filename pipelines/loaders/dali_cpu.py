"""DALI on the CPU: reads, decodes and augments in threads, and decodes only the region that a random crop keeps."""

from feedline.pipelines.loaders.dali_pipeline import DaliLoader
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs


def _make(task: Task) -> DaliLoader:
    return DaliLoader(task, "cpu")


KIND = LoaderKind("dali-cpu", "DALI on the CPU, in threads", needs("nvidia.dali"), _make)
