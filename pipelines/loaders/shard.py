"""The samples of a rank in an epoch, and their order: the same for all loaders."""

import torch

from feedline.pipelines.loaders.protocol import Settings


def order(samples: int, settings: Settings, epoch: int) -> list[int]:
    """The samples of this rank.

    All ranks shuffle alike, with a generator of their own that depends on seed and epoch, and each takes every ``world_size``-th sample:
    over all ranks each sample comes exactly once, so that some ranks have one more than others. Nothing is padded.

    Args:
        samples: of the whole dataset.
        epoch: any number; each has an order of its own.
    """
    if not settings.shuffle:
        return list(range(settings.rank, samples, settings.world_size))
    generator = torch.Generator().manual_seed((settings.seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(samples, generator=generator)[settings.rank :: settings.world_size].tolist()


def in_batches(indices: list[int], batch_size: int) -> list[list[int]]:
    """Split into batches; the last one may be smaller."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]


def seed_of_rank(settings: Settings) -> int:
    """Seed of the random transforms, different for every rank."""
    return settings.seed * 1_000_003 + settings.rank
