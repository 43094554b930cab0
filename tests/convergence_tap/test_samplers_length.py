"""The length of a sampler is asked for only where that draws nothing: torch itself never asks."""

import math

import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler, Sampler

from feedline.profiler.taps.loader_settings import drawn_length


class Counts(Sampler):
    def __init__(self):
        self.number, self.ranks = 10, 4

    def __len__(self):
        return int(math.ceil(self.number / self.ranks))


class Draws(Sampler):
    def make(self):
        return torch.randperm(8).tolist()

    def __iter__(self):
        yield from self.make()

    def __len__(self):
        return len(self.make())


class GoesThrough(Sampler):
    def __iter__(self):
        return iter(torch.randperm(8).tolist())

    def __len__(self):
        return sum(1 for _ in self)


class Inherits(RandomSampler):
    pass


@pytest.mark.parametrize(
    ("sampler", "known"),
    [
        (Counts(), 3),
        (Draws(), None),
        (GoesThrough(), None),
        (Inherits(range(7)), 7),
        (DistributedSampler(range(9), num_replicas=2, rank=0), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_length_that_draws_nothing_is_asked_for(sampler, known):
    before = torch.get_rng_state()

    assert drawn_length(sampler) == known
    assert torch.equal(torch.get_rng_state(), before)
