"""libjpeg-turbo decodes, torchvision v2 augments uint8 tensors; they become float32 on the device."""

import torch

from feedline.pipelines.loaders import decode
from feedline.pipelines.loaders.protocol import LoaderKind, Task
from feedline.pipelines.loaders.requirements import needs
from feedline.pipelines.loaders.samples import Samples
from feedline.pipelines.loaders.shard import seed_of_rank
from feedline.pipelines.loaders.workers import Finish, WorkerLoader
from feedline.pipelines.translate import v2


def to_tensor(data: bytes) -> torch.Tensor:
    """Decode to uint8 [3, h, w]."""
    return decode.as_tensor(decode.libjpeg_turbo(data))


def make(task: Task) -> WorkerLoader:
    built = v2.build(task.recipe, seed_of_rank(task.settings))
    return WorkerLoader(task, Samples(task.photos, to_tensor, built.apply), built.missing, Finish(task))


KIND = LoaderKind("simplejpeg-v2", "DataLoader, libjpeg-turbo, torchvision v2 on uint8", needs("simplejpeg", "PIL", "torchvision"), make)
