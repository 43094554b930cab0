"""Fixes in a training that knows nothing of them, in this process."""

import abc
import contextlib
import warnings
from collections import UserDict

import pytest
import torch
import torch.nn.functional as F
from apply.fixed_training import Training, fixed
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from feedline.convergence.fixes.ghost_bn import GhostBatchNorm1d
from feedline.convergence.fixes.lamb import Lamb
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.convergence import _ConvergenceWatch


def test_warm_up_lasts_its_epochs_and_no_scheduler_sees_it():
    with fixed("warmup=1ep"):
        training = Training().run()

    assert training.rates == [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]
    assert training.optimizer.param_groups[0]["lr"] == 0.8
    assert training.scheduler.base_lrs == [0.8]


def test_the_rate_rule_acts_on_each_update_and_no_scheduler_sees_it():
    with fixed("lr_rule=sqrt:4"):
        training = Training().run()

    assert training.scheduler.base_lrs == [0.8]
    assert set(training.rates) == {1.6}


def test_the_rate_rule_acts_where_the_loop_sets_the_rate():
    """As nanoGPT and adjust_learning_rate do."""
    with fixed("lr_rule=linear:8") as outside:
        training = Training()
        for step in range(3):
            for group in training.optimizer.param_groups:
                group["lr"] = 0.1 / (1 + step)
            training.net(torch.ones(4, 5)).sum().backward()
            training.optimizer.step()

    assert (outside.failed, training.rates) == ({}, [0.8, 0.4, 0.266667])
    assert training.optimizer.param_groups[0]["lr"] == 0.1 / 3


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
    iterators = type(iter(DataLoader([0]))).__base__
    before = (
        torch.optim.SGD,
        torch.nn.Module.__call__,
        DataLoader.__iter__,
        iterators.__next__,
    )
    with fixed("lr_rule=sqrt:4,warmup=1ep,ghost_bn=2"), fixed("lamb=0.1"):
        assert torch.optim.SGD is not before[0]

    assert (
        torch.optim.SGD,
        torch.nn.Module.__call__,
        DataLoader.__iter__,
        iterators.__next__,
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


@pytest.mark.parametrize(
    ("text", "kind"),
    [("adamw=0.01", "AdamW"), ("muon=0.01", "MuonWithAdamW"), ("soap=0.01", "SOAP")],
)
@pytest.mark.parametrize("torchs", [torch.optim.SGD, torch.optim.AdamW])
def test_a_fix_made_of_torchs_own_optimizers_is_made_once(text, kind, torchs):
    if kind == "SOAP":
        pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed")
    with fixed(text) as outside:
        weights = torch.nn.Linear(5, 4)
        optimizer = getattr(torch.optim, torchs.__name__)(weights.parameters(), lr=0.1)
        weights(torch.ones(2, 5)).sum().backward()
        optimizer.step()

    assert (outside.failed, type(optimizer).__name__) == ({}, kind)
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_a_class_of_the_program_may_inherit_from_a_replaced_optimizer_and_an_abstract_class():
    class Named(abc.ABC):
        @abc.abstractmethod
        def name(self): ...

    with fixed("lamb=0.04"):

        class Own(torch.optim.SGD, Named):
            def name(self):
                return "own"

        assert Own([torch.nn.Parameter(torch.ones(2))], 0.1).name() == "own"


@pytest.mark.parametrize(
    ("rates", "arguments", "expected"),
    [
        ([0.1, 0.01], {}, [1.0, 0.1]),
        ([1e-4, None], {}, [0.1, 1.0]),  # AdamW's usual rate is 1e-3
        ([0.1, None], {"lr": 0.2}, [0.5, 1.0]),
    ],
)
def test_groups_keep_the_ratios_of_their_rates(rates, arguments, expected):
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(2))], **({} if rate is None else {"lr": rate})}
        for rate in rates
    ]
    with fixed("lamb=1"):
        optimizer = torch.optim.AdamW(groups, **arguments)

    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(expected)


@pytest.mark.parametrize("grouped", [False, True])
def test_an_optimizer_that_maximizes_is_not_replaced_by_one_that_minimizes(grouped):
    weights = torch.nn.Parameter(torch.ones(2))
    params = [{"params": [weights], "maximize": True}] if grouped else [weights]
    with fixed("lars=1") as outside:
        optimizer = torch.optim.SGD(params, lr=0.1, maximize=not grouped)
        weights.grad = torch.ones(2)
        optimizer.step()

    assert weights.tolist() == pytest.approx([1.1, 1.1])
    assert "maximize=True" in outside.failed["lars"]


@pytest.mark.parametrize("text", ["lars=1:momentum=1.5", "soap=0.1:every=0"])
def test_a_program_keeps_all_parameters_where_another_optimizer_cannot_be_made(text):
    """A generator in a group was empty once the other one had been tried."""
    weights = torch.nn.Parameter(torch.ones(2, 2))
    with fixed(text) as outside:
        optimizer = torch.optim.SGD([{"params": iter([weights])}], lr=0.5)
        weights.grad = torch.ones(2, 2)
        optimizer.step()

    assert list(outside.failed) == [text.partition("=")[0]]
    assert weights.tolist() == [[0.5, 0.5]] * 2


def set_each_step(optimizer):
    """As nanoGPT does."""
    for group in optimizer.param_groups:
        group["lr"] = 0.001


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (set_each_step, "0.001 in the first update, not 0.04"),
        (
            lambda it: torch.optim.lr_scheduler.OneCycleLR(it, max_lr=0.25, total_steps=9),
            "0.01 in the first update, not 0.04",
        ),
        (lambda it: torch.optim.lr_scheduler.LinearLR(it, 0.1), ""),
        (lambda it: torch.optim.lr_scheduler.CosineAnnealingLR(it, 9), ""),
        (lambda it: None, ""),
    ],
    ids=["own loop", "OneCycleLR", "LinearLR", "CosineAnnealingLR", "none"],
)
def test_a_program_that_sets_the_rate_of_a_new_optimizer_is_told(plan, why):
    weights = torch.nn.Parameter(torch.ones(2))
    with fixed("lamb=0.04,warmup=1000") as outside:
        optimizer = torch.optim.AdamW([weights], lr=0.1)
        plan(optimizer)
        weights.grad = torch.ones(2)
        optimizer.step()

    assert why in outside.failed.get("lamb", "")
    assert bool(why) == ("lamb" in outside.failed)


class NamedInputs(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return self.net(batch["images"])


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_without_a_loader_a_warm_up_counts_the_rows_of_a_batch_that_is_a_dictionary(kind):
    with fixed("warmup=16") as outside:
        training = Training(norm=False)
        net = NamedInputs(training.net)
        for _ in range(5):
            net(kind(images=torch.ones(4, 5))).sum().backward()
            training.optimizer.step()

    assert (outside.failed, training.rates) == ({}, [0.2, 0.4, 0.6, 0.8, 0.8])


def test_a_warm_up_that_sees_no_samples_leaves_the_rate_and_is_told():
    """A factor of 0 would train nothing, to the end."""
    with fixed("warmup=16") as outside:
        training = Training(norm=False)
        for _ in range(2):
            weights = training.net[0].weight
            torch.nn.functional.linear(torch.ones(4, 5), weights).sum().backward()
            training.optimizer.step()

    assert training.rates == [0.8, 0.8]
    assert outside.failed["warmup"].startswith("no samples were seen")


def checkpoint(text="warmup=1ep"):
    """The state of the optimizer of a training that a fix was applied to."""
    with fixed(text):
        return Training().run().optimizer.state_dict()


@pytest.mark.parametrize(
    ("text", "saved_with", "acts"),
    [
        ("lr_rule=sqrt:4", "warmup=1ep", True),
        ("lr_rule=sqrt:4", "lr_rule=sqrt:4", True),
        ("lars=1", "warmup=1ep", False),
        ("lars=1", "lars=1", True),
        ("warmup=1ep", "warmup=1ep", True),
    ],
)
def test_a_checkpoint_that_brings_back_its_own_rate_ends_a_fix_that_sets_it(text, saved_with, acts):
    state = checkpoint(saved_with)
    with fixed(text) as outside:
        training = Training()
        training.optimizer.load_state_dict(state)
        training.run(epochs=1)

    assert (outside.failed == {}) is acts
    assert acts or "with it the learning rate 0.8 in place of" in next(
        iter(outside.failed.values())
    )
    loads = training.optimizer._optimizer_load_state_dict_pre_hooks
    assert not loads, "hooks go with the recording"


class Wrapping(torch.optim.Optimizer):
    """An optimizer that steps another one, made of its groups, as SAM and ZeRO do."""

    def __init__(self, params, lr, copied=False):
        super().__init__(params, {"lr": lr})
        groups = [dict(group) for group in self.param_groups] if copied else self.param_groups
        self.inner = torch.optim.SGD(groups, lr=lr)
        self.rates = []

    def step(self, closure=None):
        for group, own in zip(self.inner.param_groups, self.param_groups, strict=True):
            group["lr"] = own["lr"]
        self.rates.append(round(self.inner.param_groups[0]["lr"], 6))
        self.inner.step()


@pytest.mark.parametrize("copied", [False, True])
def test_the_rate_rule_acts_once_where_an_optimizer_wraps_another(copied):
    with fixed("lr_rule=linear:8"):
        optimizer = Wrapping([torch.nn.Parameter(torch.ones(1))], 0.1, copied)
        inner = []
        optimizer.inner.register_step_pre_hook(
            lambda it, *_: inner.append(it.param_groups[0]["lr"])
        )
        optimizer.step()
        optimizer.step()

    assert (optimizer.rates, inner) == ([0.8, 0.8], pytest.approx([0.8, 0.8]))
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]


def test_warm_up_acts_once_where_an_optimizer_wraps_another():
    with fixed("warmup=1ep"):
        training = Training()
        training.optimizer = Wrapping(training.net.parameters(), 0.8)
        training.scheduler = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda _: 1.0)
        training.run()

    assert training.optimizer.rates == [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]
    assert training.optimizer.param_groups[0]["lr"] == 0.8


def test_warm_up_in_epochs_begins_although_the_model_was_called_before_there_was_a_loader():
    with fixed("warmup=1ep") as outside:
        training = Training(norm=False)
        training.net(torch.ones(1, 5))
        training.run()

    assert not outside.failed
    assert training.rates[-4:] == [0.8] * 4 and training.rates[0] < 0.4


def test_a_sample_counts_once_however_often_the_model_is_called_for_it(monkeypatch):
    watch = _ConvergenceWatch(lambda *_: None, lambda *_: None)
    monkeypatch.setattr(recorder, "convergence", watch)
    with fixed("warmup=1ep"):
        training = Training(norm=False)
        for images, _ in DataLoader(TensorDataset(torch.ones(16, 5), torch.zeros(16)), 4):
            watch.handed_over(len(images))
            for _ in range(3):  # anchor, positive, negative
                watch.forwarded(training.net, (images,), {})
                training.net(images).sum().backward()
            training.optimizer.step()

    assert training.rates == [0.2, 0.4, 0.6, 0.8]


class Stepping(torch.optim.Optimizer):
    """An optimizer with a parameter of its own, which steps another one as well."""

    def __init__(self, inner):
        super().__init__([torch.nn.Parameter(torch.zeros(1))], {"lr": 1.0})
        self.inner = inner

    def step(self, closure=None):
        self.inner.step()


def test_warm_up_acts_on_an_inner_optimizer_of_other_parameters():
    with fixed("warmup=1ep"):
        training = Training()
        inner = training.optimizer
        training.optimizer = Stepping(inner)
        training.scheduler = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda _: 1.0)
        training.run(1)

    assert training.rates == [0.2, 0.4, 0.6, 0.8]


def test_an_optimizer_whose_step_raised_does_not_hide_the_next_one():
    class Raising(torch.optim.SGD):
        def step(self, closure=None):
            raise MemoryError

    with fixed("warmup=1ep"):
        with contextlib.suppress(MemoryError):
            Raising([torch.nn.Parameter(torch.ones(1))], lr=1.0).step()
        training = Training().run()

    assert training.rates == [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]


def test_a_validation_loader_is_not_taken_for_the_epoch_of_a_stream():
    with fixed("warmup=1ep") as outside:
        training = Training(norm=False)
        for step in range(6):
            if step == 3:
                list(DataLoader(TensorDataset(torch.ones(8)), 4))
            training.net(torch.ones(4, 5)).sum().backward()
            training.optimizer.step()

    assert set(training.rates) == {0.8} and "warmup" in outside.failed


def test_warm_up_acts_once_where_the_rate_is_copied_to_master_weights():
    class Master(Stepping):
        def step(self, closure=None):
            self.inner.param_groups[0]["lr"] = self.param_groups[0]["lr"]
            self.inner.step()

    with fixed("warmup=1ep"):
        training = Training(lr=1.0)
        training.optimizer = Master(training.optimizer)
        training.scheduler = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda _: 1.0)
        training.run(1)

    assert training.rates == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (torch.optim.RMSprop, "torch.optim.rmsprop.RMSprop, not made as torch.optim.SGD"),
        (type("Own", (torch.optim.SGD,), {}), "Own, not made as torch.optim.SGD"),
    ],
)
def test_an_optimizer_that_is_not_replaced_is_told(kind, why):
    with fixed("lars=1") as outside:
        net = torch.nn.Linear(5, 3)
        optimizer = kind(net.parameters(), lr=0.1)
        for _ in range(2):
            net(torch.ones(2, 5)).sum().backward()
            optimizer.step()

    assert why in outside.failed["lars"]
    assert [attached for _, attached, _ in outside.told] == [True, False], "it is told once"


def test_fixes_of_a_program_that_never_updates_are_told():
    with fixed("warmup=1ep,ghost_bn=2") as outside:
        Training().net.eval()(torch.ones(2, 5))

    assert outside.failed == {
        "warmup": "no update of an optimizer was seen",
        "ghost_bn": "no model was called in training",
    }


class OwnBatches(torch.utils.data.Sampler):
    """A rank's batches of a batch sampler, as libraries that train on several ranks draw them."""

    def __init__(self, size):
        if size:
            self.batch_size = size

    def __len__(self):
        return 5

    def __iter__(self):
        return iter([list(range(5 * number, 5 * number + 5)) for number in range(5)])


def of_accelerate(batch, split):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("accelerate.data_loader", reason="accelerate is missing")
    return library.BatchSamplerShard(BatchSampler(range(100), batch, False), 4, 0, split)


@pytest.mark.parametrize(
    "make",
    [
        lambda data: BatchSampler(DistributedSampler(data, 4, 0, shuffle=False), 5, False),
        lambda data: OwnBatches(5),
        lambda data: of_accelerate(5, False),
        lambda data: of_accelerate(20, True),
    ],
    ids=["torch", "own", "accelerate", "accelerate, split"],
)
def test_an_epoch_of_a_batch_sampler_is_that_of_all_ranks_once(make):
    data = TensorDataset(torch.ones(100, 5))
    batches = make(data)
    with fixed("warmup=1ep") as outside:
        outside.ranks = 4
        training = Training(norm=False, lr=1.0)
        for (images,) in DataLoader(data, batch_sampler=batches):
            training.net(images).sum().backward()
            training.optimizer.step()

    assert (outside.failed, training.rates) == ({}, [0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(("ranks", "known"), [(1, True), (4, False)])
def test_a_batch_sampler_that_tells_nothing_has_the_epoch_of_its_data_set_on_one_rank(ranks, known):
    with fixed("warmup=1ep") as outside:
        outside.ranks = ranks
        training = Training(norm=False, lr=1.0)
        for (images,) in DataLoader(
            TensorDataset(torch.ones(25, 5)), batch_sampler=OwnBatches(None)
        ):
            training.net(images).sum().backward()
            training.optimizer.step()

    assert (outside.failed == {}) is known
    assert training.rates == ([0.2, 0.4, 0.6, 0.8, 1.0] if known else [1.0] * 5)


def test_the_epoch_is_that_of_the_loader_that_feeds_the_training_not_of_the_one_made_last():
    with fixed("warmup=1ep"):
        training = Training(norm=False)
        batches = iter(DataLoader(TensorDataset(torch.ones(16, 5)), 4))
        evaluation = iter(DataLoader(TensorDataset(torch.ones(4, 5)), 4))
        for (images,) in batches:
            training.net(images).sum().backward()
            training.optimizer.step()
        next(evaluation)

    assert training.rates == [0.2, 0.4, 0.6, 0.8]
