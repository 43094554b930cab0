"""Pillow decodes, torchvision v2 augments uint8 tensors; they become float32 on the device."""

import numpy as np
import torch

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import Finish, WorkerLoader
from feedline.pipelines.translate import v2


def _to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return decode.as_tensor(np.array(decode.pillow(data)))


def _make(task: Task) -> WorkerLoader:
    built = v2.build(task.recipe, seed_of_rank(task.settings))
    return WorkerLoader(task, Samples(task.photos, _to_tensor, built.apply), built.missing, Finish(task))


KIND = LoaderKind("pillow-v2", "DataLoader, Pillow, torchvision v2 on uint8", needs("PIL", "torchvision"), _make)
