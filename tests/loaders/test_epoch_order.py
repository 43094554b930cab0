"""Which samples a rank sees, and in which order."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from feedline.pipelines.loaders.protocol import LoaderSettings


@given(
    samples=st.integers(0, 200),
    world=st.integers(1, 9),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 10**6),
    shuffle=st.booleans(),
)
def test_over_all_ranks_every_sample_comes_exactly_once(samples, world, seed, epoch, shuffle):
    settings = LoaderSettings(seed=seed, world_size=world, shuffle=shuffle)
    ranks = [replace(settings, rank=rank).epoch_order(samples, epoch) for rank in range(world)]

    assert sorted(index for rank in ranks for index in rank) == list(range(samples))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


def test_the_order_follows_from_seed_and_epoch_alone():
    first = LoaderSettings(seed=3).epoch_order(1000, 1)
    torch.rand(5)

    assert LoaderSettings(seed=3, batch_size=7, workers=9).epoch_order(1000, 1) == first
    assert LoaderSettings(seed=3).epoch_order(1000, 2) != first
    assert LoaderSettings(seed=4).epoch_order(1000, 1) != first
    assert LoaderSettings(seed=4).epoch_order(1000, 0) != LoaderSettings(seed=3).epoch_order(
        1000, 1
    )


def test_without_shuffling_ranks_take_turns():
    assert LoaderSettings(rank=1, world_size=3, shuffle=False).epoch_order(7, 5) == [1, 4]


def test_the_last_batch_has_what_is_left():
    assert LoaderSettings(batch_size=2, shuffle=False).epoch_batches(5, 0) == [[0, 1], [2, 3], [4]]
