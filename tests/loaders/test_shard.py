"""Which samples a rank sees, and in which order."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from feedline.pipelines.loaders.protocol import Settings
from feedline.pipelines.loaders.shard import in_batches, order


@given(samples=st.integers(0, 200), world=st.integers(1, 9), seed=st.integers(0, 2**40), epoch=st.integers(0, 10**6), shuffle=st.booleans())
def test_over_all_ranks_every_sample_comes_exactly_once(samples, world, seed, epoch, shuffle):
    ranks = [order(samples, Settings(seed=seed, rank=rank, world_size=world, shuffle=shuffle), epoch) for rank in range(world)]

    assert sorted(index for rank in ranks for index in rank) == list(range(samples))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


def test_the_order_follows_from_seed_and_epoch_alone():
    first = order(1000, Settings(seed=3), 1)
    torch.rand(5)

    assert order(1000, Settings(seed=3, batch_size=7, workers=9), 1) == first
    assert order(1000, Settings(seed=3), 2) != first
    assert order(1000, Settings(seed=4), 1) != first
    assert order(1000, Settings(seed=4), 0) != order(1000, Settings(seed=3), 1)


def test_without_shuffling_ranks_take_turns():
    assert order(7, Settings(rank=1, world_size=3, shuffle=False), 5) == [1, 4]


def test_the_last_batch_has_what_is_left():
    assert in_batches([5, 3, 1, 0, 2], 2) == [[5, 3], [1, 0], [2]]
