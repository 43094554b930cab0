"""Which samples a rank sees, and in which order."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from feedline.pipelines.loaders.protocol import LoaderSettings, epoch_order, split_batches


@given(samples=st.integers(0, 200), world=st.integers(1, 9), seed=st.integers(0, 2**40), epoch=st.integers(0, 10**6), shuffle=st.booleans())
def test_over_all_ranks_every_sample_comes_exactly_once(samples, world, seed, epoch, shuffle):
    ranks = [epoch_order(samples, LoaderSettings(seed=seed, rank=rank, world_size=world, shuffle=shuffle), epoch) for rank in range(world)]

    assert sorted(index for rank in ranks for index in rank) == list(range(samples))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


def test_the_order_follows_from_seed_and_epoch_alone():
    first = epoch_order(1000, LoaderSettings(seed=3), 1)
    torch.rand(5)

    assert epoch_order(1000, LoaderSettings(seed=3, batch_size=7, workers=9), 1) == first
    assert epoch_order(1000, LoaderSettings(seed=3), 2) != first
    assert epoch_order(1000, LoaderSettings(seed=4), 1) != first
    assert epoch_order(1000, LoaderSettings(seed=4), 0) != epoch_order(1000, LoaderSettings(seed=3), 1)


def test_without_shuffling_ranks_take_turns():
    assert epoch_order(7, LoaderSettings(rank=1, world_size=3, shuffle=False), 5) == [1, 4]


def test_the_last_batch_has_what_is_left():
    assert split_batches([5, 3, 1, 0, 2], 2) == [[5, 3], [1, 0], [2]]
