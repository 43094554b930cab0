"""Batches that grow, and a schedule that counts samples."""

import math

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from feedline.convergence import apply
from feedline.convergence.fixes.batch_growth import (
    FIX,
    GrowingBatchSampler,
    SamplesSchedule,
    growth_stages,
)
from feedline.profiler.errors import FixError

DATA = range(50)
STAGES = [(0, 4), (1, 8), (3, 20)]


def shard(rank=0, ranks=2):
    return DistributedSampler(DATA, num_replicas=ranks, rank=rank, seed=5)


def shuffled():
    return RandomSampler(DATA, generator=torch.Generator().manual_seed(7))


def epochs(sampler, loader, first, last):
    """The batches of some epochs, with all calls that a loop makes."""
    found = []
    for epoch in range(first, last):
        sampler.set_epoch(epoch)
        for batch in loader:
            found.append(batch.tolist())
            sampler.count(len(batch))
    return found


def loader_of(sampler, workers=0):
    return DataLoader(DATA, batch_sampler=sampler, num_workers=workers)


def test_the_batch_is_that_of_the_epochs_stage():
    sampler = GrowingBatchSampler(SequentialSampler(DATA), STAGES)
    found = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        sizes = [len(batch) for batch in sampler]
        found.append(sizes)
        assert sum(sizes) == 50
        assert len(sizes) == math.ceil(50 / sampler.batch)

    assert [sizes[0] for sizes in found] == [4, 8, 8, 20, 20]
    assert [sizes[-1] for sizes in found] == [2, 2, 2, 10, 10]


def test_a_smaller_last_batch_can_be_left_out():
    sampler = GrowingBatchSampler(SequentialSampler(DATA), [(0, 20)], drop_last=True)

    assert len(sampler) == 2
    assert [len(batch) for batch in sampler] == [20, 20]


def test_a_batch_larger_than_the_data_is_all_of_it():
    assert [*GrowingBatchSampler(SequentialSampler(DATA), [(0, 1000)])] == [[*DATA]]


def test_shards_of_two_ranks_are_apart_and_differ_from_epoch_to_epoch():
    of_rank = []
    for rank in range(2):
        sampler = GrowingBatchSampler(shard(rank), STAGES)
        of_rank.append(epochs(sampler, loader_of(sampler), 0, 2))
    first, second = (sum(batches[:7], []) for batches in of_rank)

    assert sorted(first + second) == [*DATA]
    assert sum(of_rank[0][7:], []) != first


@pytest.mark.parametrize(
    "make",
    [shard, shuffled, lambda: SequentialSampler(DATA)],
    ids=["DistributedSampler", "RandomSampler", "in order"],
)
@pytest.mark.parametrize("stop", [1, 5, 6, 12, 14])
def test_resumed_in_mid_epoch_it_brings_what_was_left(make, stop):
    sampler = GrowingBatchSampler(make(), STAGES)
    at_once = epochs(sampler, loader_of(sampler), 0, 4)

    sampler, left = GrowingBatchSampler(make(), STAGES), stop
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for batch in loader_of(sampler):
            sampler.count(len(batch))
            left -= 1
            if not left:
                break
        if not left:
            break
    state = sampler.state_dict()

    resumed = GrowingBatchSampler(make(), STAGES)
    resumed.load_state_dict(state)

    assert epochs(resumed, loader_of(resumed), resumed.epoch, 4) == at_once[stop:]


def test_batches_that_workers_fetched_ahead_are_not_lost():
    sampler = GrowingBatchSampler(shard(), STAGES)
    at_once = epochs(sampler, loader_of(sampler), 0, 1)
    sampler.set_epoch(0)
    batches = iter(loader_of(sampler, workers=2))
    for _ in range(2):
        sampler.count(len(next(batches)))
    state = sampler.state_dict()
    del batches

    resumed = GrowingBatchSampler(shard(), STAGES)
    resumed.load_state_dict(state)

    assert len(resumed) == len(at_once) - 2
    assert epochs(resumed, loader_of(resumed, workers=2), 0, 1) == at_once[2:]


def test_a_state_is_kept_by_torch_save(tmp_path):
    sampler = GrowingBatchSampler(shuffled(), STAGES)
    batches = iter(sampler)
    sampler.count(len(next(batches)))
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    resumed = GrowingBatchSampler(shuffled(), STAGES)

    resumed.load_state_dict(torch.load(tmp_path / "state.pt"))

    assert [*resumed] == [*batches]


def test_the_length_of_an_epoch_stays_while_its_samples_are_counted():
    sampler = GrowingBatchSampler(range(10), [(0, 4)])
    lengths = []
    for batch in sampler:
        sampler.count(len(batch))
        lengths.append(len(sampler))

    assert lengths == [3, 3, 3]
    assert len(sampler) == 3  # a loop divides its loss by this
    sampler.set_epoch(1)
    assert len(sampler) == 3


def test_a_loop_that_forgets_set_epoch_is_told():
    sampler = GrowingBatchSampler(SequentialSampler(DATA), STAGES)
    list(sampler)

    with pytest.raises(ValueError, match=r"epoch 0 has already started: call sampler.set_epoch"):
        list(sampler)


def test_a_loop_that_does_not_count_is_told_at_its_checkpoint():
    sampler = GrowingBatchSampler(SequentialSampler(DATA), STAGES)
    next(iter(sampler))

    with pytest.raises(ValueError, match=r"call sampler.count"):
        sampler.state_dict()


def test_before_the_first_batch_there_is_a_state_too():
    assert GrowingBatchSampler(SequentialSampler(DATA), STAGES).state_dict() == {
        "epoch": 0,
        "taken": 0,
        "order": None,
        "generator": None,
    }


@pytest.mark.parametrize(
    "stages", [[], [(1, 4)], [(0, 4), (0, 8)], [(0, 4), (3, 8), (2, 16)], [(0, 0)]]
)
def test_stages_that_are_none_are_refused(stages):
    with pytest.raises(ValueError, match="stages must be"):
        GrowingBatchSampler(SequentialSampler(DATA), stages)


def test_decay_becomes_growth():
    assert growth_stages(32, [6, 9], 0.25) == [(0, 32), (6, 128), (9, 512)]
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        growth_stages(32, [6], 2)


def sgd():
    return torch.optim.SGD(
        [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": 0.5}], lr=1.0
    )


def rates(optimizer, schedule, batches):
    found = []
    for batch in batches:
        optimizer.step()
        schedule.step(batch)
        found.append([group["lr"] for group in optimizer.param_groups])
    return found


def test_the_schedule_is_a_function_of_samples_whatever_the_batches():
    small, large = sgd(), sgd()

    of_small = rates(small, SamplesSchedule(small, lambda samples: 1 - samples / 100), [10] * 8)
    of_large = rates(
        large, SamplesSchedule(large, lambda samples: 1 - samples / 100), [10, 10, 20, 40]
    )

    assert of_large == [of_small[at] for at in (0, 1, 3, 7)]
    assert of_small[4] == pytest.approx([0.5, 0.25])


def test_the_schedule_goes_on_where_it_was(tmp_path):
    whole, first, second = sgd(), sgd(), sgd()
    at_once = rates(whole, SamplesSchedule(whole, lambda samples: 0.99**samples), [3] * 6)
    schedule = SamplesSchedule(first, lambda samples: 0.99**samples)
    before = rates(first, schedule, [3] * 2)
    torch.save([first.state_dict(), schedule.state_dict()], tmp_path / "state.pt")

    resumed = SamplesSchedule(second, lambda samples: 0.99**samples)
    of_optimizer, of_schedule = torch.load(tmp_path / "state.pt")
    second.load_state_dict(of_optimizer)
    resumed.load_state_dict(of_schedule)

    assert before + rates(second, resumed, [3] * 4) == at_once


def test_fewer_samples_than_none_are_refused():
    with pytest.raises(ValueError, match="an update cannot have"):
        SamplesSchedule(sgd(), lambda _: 1.0).step(-1)


def test_a_value_is_stages_and_its_lines_make_them():
    setting = FIX.parse("4:1=8:3=20")
    program = {
        "sampler": SequentialSampler(DATA),
        "DataLoader": DataLoader,
        "data": DATA,
        "epoch": 3,
        "inputs": range(8),
    }
    program |= {"optimizer": sgd(), "factor_of_samples": lambda samples: 1 / (1 + samples)}

    imports, _, rest = FIX.lines(setting).partition("\n\n")
    made, _, each_update = rest.partition("# after each optimizer.step():\n")
    exec(f"{imports}\n{made}optimizer.step()\n{each_update}", program)

    assert FIX.attach is None
    assert (program["sampler"].stages, program["sampler"].batch, program["sampler"].taken) == (
        STAGES,
        20,
        8,
    )
    assert program["optimizer"].param_groups[0]["lr"] == pytest.approx(1 / 9)


@pytest.mark.parametrize("text", ["", "x", "0", "32:6", "32:6=x", "32:6=64:3=128", "32:6=0"])
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="expected 32:6=128"):
        FIX.parse(text)


def test_the_command_line_that_converge_advise_prints_prints_the_lines():
    with pytest.raises(
        FixError, match="cannot be applied from outside; add it to the program"
    ) as caught:
        apply.parse_fixes("batch_growth=64:2=128:3=256")

    assert "stages=[(0, 64), (2, 128), (3, 256)]" in " ".join(caught.value.args)
