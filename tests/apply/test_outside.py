"""Fixes in a training that knows nothing of them, in this process."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from feedline.convergence.apply import FixInjector, parse_fixes
from feedline.convergence.fixes.ghost_bn import GhostBatchNorm1d
from feedline.convergence.fixes.lamb import Lamb
from feedline.profiler.taps.patch import Patches


@contextlib.contextmanager
def fixed(text):
    told, patches = [], Patches()
    outside = FixInjector(lambda *row: told.append(row))
    undo = outside.attach(parse_fixes(text), patches)
    try:
        yield outside
    finally:
        patches.undo()
        undo()


class Training:
    """Sixteen samples in batches of four: a plain loop that writes down its rates."""

    def __init__(self, norm=True, lr=0.8):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, 4),
            *([torch.nn.BatchNorm1d(4)] if norm else []),
            torch.nn.Linear(4, 3),
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)
        self.rates = []
        self.optimizer.register_step_pre_hook(
            lambda optimizer, *_: self.rates.append(round(optimizer.param_groups[0]["lr"], 6))
        )

    def run(self, epochs=2):
        data = TensorDataset(
            torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3
        )
        for _ in range(epochs):
            for images, labels in DataLoader(data, batch_size=4):
                F.cross_entropy(self.net(images), labels).backward()
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
        return self


def test_warm_up_lasts_its_epochs_and_no_scheduler_sees_it():
    with fixed("warmup=1ep"):
        training = Training().run()

    assert training.rates == [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]
    assert training.optimizer.param_groups[0]["lr"] == 0.8
    assert training.scheduler.base_lrs == [0.8]


def test_the_rate_rule_acts_before_a_scheduler_sees_the_rate():
    with fixed("lr_rule=sqrt:4"):
        training = Training().run()

    assert training.scheduler.base_lrs == [1.6]
    assert set(training.rates) == {1.6}


def test_layers_are_exchanged_before_the_first_forward_that_trains():
    with fixed("ghost_bn=2") as outside:
        training = Training()
        training.net.eval()(torch.ones(2, 5))
        assert not isinstance(training.net[1], GhostBatchNorm1d)
        training.net.train()
        training.run()

    assert isinstance(training.net[1], GhostBatchNorm1d)
    assert outside.failed == {}


def test_another_optimizer_stands_where_the_program_makes_its_own():
    with fixed("lamb=0.04:wd=0.01"):
        training = Training().run()

    assert isinstance(training.optimizer, Lamb)
    assert (training.rates[0], training.optimizer.param_groups[0]["weight_decay"]) == (0.04, 0.01)


def test_all_is_as_before_afterwards():
    before = (
        torch.optim.SGD,
        torch.optim.Optimizer.__init__,
        torch.nn.Module.__call__,
        DataLoader.__iter__,
    )
    with fixed("lr_rule=sqrt:4,warmup=1ep,ghost_bn=2"), fixed("lamb=0.1"):
        assert torch.optim.SGD is not before[0]

    assert (
        torch.optim.SGD,
        torch.optim.Optimizer.__init__,
        torch.nn.Module.__call__,
        DataLoader.__iter__,
    ) == before
    assert set(Training().run().rates) == {0.8}


@pytest.mark.parametrize(
    ("text", "norm", "why"),
    [
        ("ghost_bn=2", False, "batch norm"),
        ("lr_rule=sqrt", True, "one rank"),
        ("warmup=1ep", True, ""),
    ],
)
def test_a_fix_that_cannot_act_is_named_and_the_training_is_untouched(text, norm, why):
    plain = Training(norm).run()
    with fixed(text) as outside:
        training = Training(norm).run()

    if not why:
        assert outside.failed == {}
        return
    assert why in outside.failed[text.split("=")[0]]
    for one, other in zip(plain.net.parameters(), training.net.parameters(), strict=True):
        assert torch.equal(one, other)


def test_noise_on_the_output_changes_the_gradient_and_draws_no_global_random_number():
    state = torch.get_rng_state()
    plain = Training(norm=False)
    drawn = torch.get_rng_state()
    torch.set_rng_state(state)
    with fixed("gradient_noise=0.5") as outside:
        noisy = Training(norm=False)
        assert torch.equal(torch.get_rng_state(), drawn)
        noisy.run()
        after = torch.get_rng_state()
    torch.set_rng_state(drawn)
    plain.run()

    assert torch.equal(torch.get_rng_state(), after)
    assert outside.failed == {}
    assert not torch.equal(plain.net[0].weight, noisy.net[0].weight)


def test_a_stream_has_no_epochs_to_warm_up_for():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return ((torch.ones(5), 1) for _ in range(8))

    with fixed("warmup=1ep") as outside:
        training = Training(norm=False)
        for images, labels in DataLoader(Stream(), batch_size=4):
            F.cross_entropy(training.net(images), labels).backward()
            training.optimizer.step()

    assert "give the length in samples" in outside.failed["warmup"]
    assert set(training.rates) == {0.8}


def test_a_class_of_the_programs_own_is_left_alone_and_torchs_instances_stay_so():
    before = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    with fixed("lamb=0.04"):

        class Own(torch.optim.SGD):
            def __init__(self, params, lr):
                super().__init__(params, lr=lr)
                self.more = True

        own, made = Own([torch.nn.Parameter(torch.ones(2))], 0.1), Training().optimizer

        assert own.more and not isinstance(own, Lamb)
        assert isinstance(made, Lamb) and isinstance(made, torch.optim.SGD)
        assert isinstance(before, torch.optim.SGD) and not isinstance(before, Own)
    assert Own([torch.nn.Parameter(torch.ones(2))], 0.1).more
