"""Losses, rates and norms of accumulation, in this process."""

import itertools
import math
import sys
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import feedline
from feedline.analysis.convergence import checks
from feedline.analysis.convergence.read_training import read
from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm

SAMPLES = 4


@pytest.fixture
def run(tmp_path):
    """Record a training in this process, and read it."""
    numbers = itertools.count()

    def recorded(train):
        folder = tmp_path / str(next(numbers))
        with feedline.record(folder):
            result = train()
        return read(folder), result

    return recorded


def model(*layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(*layers or (torch.nn.Linear(5, 3),))


def batches(count, generator=None):
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(SAMPLES, 5, generator=generator),
            torch.randint(3, (SAMPLES,), generator=generator),
        )
        for _ in range(count)
    ]


def squared(net):
    return sum(float(parameter.grad.double().square().sum()) for parameter in net.parameters())


@pytest.mark.parametrize("divided", [True, False])
def test_accumulation_gives_the_first_micro_batch_and_the_mean_of_all(run, divided):
    def train():
        net, truth = model(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for update in range(6):
            for micro, (images, labels) in enumerate(batches(24)[4 * update : 4 * update + 4]):
                (F.cross_entropy(net(images), labels) / (4 if divided else 1)).backward()
                if micro == 0:
                    first = squared(net)
            truth.append(first / squared(net))
            optimizer.step()
            optimizer.zero_grad()
        return truth

    recorded, truth = run(train)

    norms = recorded.norms
    assert (norms.how, norms.parts, set(norms.b), set(norms.B)) == (
        "accumulation",
        4,
        {4.0},
        {16.0},
    )
    assert norms.updates.tolist() == [1, 2, 3, 4, 5][-len(norms.updates) :]
    np.testing.assert_allclose(
        norms.small_sq / norms.big_sq, [16 * truth[update] for update in norms.updates], rtol=1e-4
    )


def test_one_process_without_accumulation_says_what_the_noise_scale_needs(run):
    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(4):
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert recorded.norms is None
    assert "several ranks, or gradient accumulation" in recorded.why


def test_the_loss_is_the_one_before_it_was_scaled(run):
    def train():
        net, losses = model(), []
        optimizer, scaler = (
            torch.optim.SGD(net.parameters(), lr=0.1),
            torch.amp.GradScaler("cpu", init_scale=1024.0),
        )
        for images, labels in batches(3):
            loss = F.cross_entropy(net(images), labels)
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return losses

    recorded, losses = run(train)

    assert recorded.curves["train loss"].values.tolist() == losses
    assert recorded.setup["scaler"] == {"kind": "GradScaler", "skipped": 0}


def test_a_loss_that_is_not_a_number_is_written_as_it_was(run):
    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(3):
            (F.cross_entropy(net(images), labels) * math.nan).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert np.isnan(recorded.curves["train loss"].values).all()


def test_evaluation_losses_and_the_programs_own_numbers_are_curves(run):
    def train():
        net, loss = model(), torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(2):
            for images, labels in batches(3):
                loss(net(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                values = [loss(net.eval()(images), labels).item() for images, labels in batches(2)]
            net.train()
            feedline.metric("val accuracy", 10.0 * epoch)
        return values

    recorded, values = run(train)

    assert recorded.curves["val accuracy"].values.tolist() == [0.0, 10.0]
    assert recorded.curves["val accuracy"].samples.tolist() == [12.0, 24.0]
    assert len(recorded.curves["eval loss"].values) == 2
    assert recorded.curves["eval loss"].values[-1] == pytest.approx(np.mean(values), rel=1e-6)


class Metric(torch.nn.Module):
    """As torchmetrics.Metric: a module, although it is no model."""

    __module__ = "torchmetrics.metric"


class Accuracy(Metric):
    def forward(self, guessed, labels):
        return (guessed.argmax(1) == labels).float().mean()


def test_a_metric_of_torchmetrics_is_neither_a_loss_nor_a_model(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", types.ModuleType("torchmetrics"))

    def train():
        net, loss, accuracy = model(), torch.nn.CrossEntropyLoss(), Accuracy()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(4):
            guessed = net(images)
            loss(guessed, labels).backward()
            accuracy(guessed, labels)
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            values = [
                (loss(guessed := net.eval()(images), labels).item(), accuracy(guessed, labels))[0]
                for images, labels in batches(2)
            ]
        return values

    recorded, values = run(train)

    assert recorded.updates == 4
    assert recorded.curves["eval loss"].values.tolist() == pytest.approx(
        [np.mean(values)], rel=1e-6
    )


def test_sparse_gradients_end_the_norms_with_a_reason_and_nothing_else(run):
    def train():
        net = torch.nn.Sequential(
            torch.nn.Embedding(10, 5, sparse=True), torch.nn.Flatten(), torch.nn.Linear(10, 3)
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(8):
            for _ in range(2):
                F.cross_entropy(net(torch.randint(10, (4, 2))), torch.randint(3, (4,))).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded, _ = run(train)

    assert recorded.norms is None and recorded.why
    assert len(recorded.curves["train loss"].values) == 8


def test_optimizers_that_take_turns_have_no_norms(run):
    def train():
        nets = model(), model()
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        for images, labels in batches(8):
            for net, optimizer in zip(nets, optimizers, strict=True):
                for _ in range(2):
                    F.cross_entropy(net(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()

    recorded, _ = run(train)

    assert recorded.norms is None
    assert "several optimizers" in recorded.why


def test_frozen_and_unused_parameters_do_not_matter(run):
    def train():
        net = model(torch.nn.Linear(5, 5), torch.nn.Linear(5, 3))
        net[0].weight.requires_grad_(False)
        unused = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([*net.parameters(), unused], lr=0.1)
        for images, labels in batches(6):
            for _ in range(2):
                F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded, _ = run(train)

    np.testing.assert_allclose(
        recorded.norms.small_sq, recorded.norms.big_sq, rtol=1e-5
    )  # the same batch twice


def test_the_set_up_is_described(run):
    def train():
        net = model(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        groups = [
            {"params": [net[0].weight], "weight_decay": 0.1},
            {"params": list(net.parameters())[1:]},
        ]
        optimizer = torch.optim.SGD(groups, lr=0.2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
        data = torch.utils.data.TensorDataset(torch.randn(32, 5), torch.randint(3, (32,)))
        sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
        loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
        for _ in range(3):
            for images, labels in loader:
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()
                scheduler.step()

    recorded, _ = run(train)

    (optimizer,) = recorded.setup["optimizers"]
    assert (optimizer["kind"], optimizer["module"]) == ("SGD", "torch.optim.sgd")
    assert [
        (group["weight_decay"], group["tensors"], group["vectors"]) for group in optimizer["groups"]
    ] == [(0.1, 1, 0), (0.0, 5, 4)]
    assert recorded.setup["schedulers"] == [
        {"kind": "CosineAnnealingLR", "horizon": 50, "steps": 11, "optimizer": 0}
    ]  # by the last update: it is gone by the end
    assert recorded.setup["norms"] == {"BatchNorm1d": 1}
    assert recorded.setup["batch_norms"] == [{"layers": 1, "synced": 0, "samples": 4, "gpu": False}]
    (sampler,) = recorded.setup["samplers"]
    assert sampler == {
        "kind": "DistributedSampler",
        "shuffles": True,
        "epochs": 3,
        "distinct": 1,
        "samples": 16,
        "of": 32,
        "loader": 0,
    }
    assert recorded.samples_per_epoch == 16.0


def test_sparse_gradients_are_described_and_whose_step_it_is(run):
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)

    class Inherited(torch.optim.SGD):
        pass

    def train(kind, sparse):
        def trained():
            table, net = torch.nn.Embedding(20, 5, sparse=sparse), model()
            optimizer = kind([*table.parameters(), *net.parameters()], lr=0.1)
            for images, labels in batches(4):
                rows = table(labels)
                F.cross_entropy(net(images + rows), labels).backward()
                optimizer.step()
                optimizer.zero_grad()

        (found,) = run(trained)[0].setup["optimizers"]
        return found["step"], found["groups"][0].get("sparse")

    assert train(torch.optim.SGD, True) == ("SGD", 1)
    assert train(Inherited, False) == ("SGD", None)
    assert train(Own, False) == ("", None)


@pytest.mark.parametrize(
    ("scored", "found"), [(False, {"rows": 300, "elements": 2400}), (True, None)]
)
def test_a_table_of_which_an_update_needs_few_rows_is_told_from_one_that_scores_all(
    run, scored, found
):
    class Items(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = torch.nn.Embedding(300, 8), torch.nn.Linear(8, 300)

        def forward(self, ids):
            rows = self.table(ids)
            return rows @ self.table.weight.T if scored else self.out(rows)

    def train():
        net = Items()
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(3):
            F.cross_entropy(net(torch.randint(300, (16,))), torch.randint(300, (16,))).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert run(train)[0].setup.get("embeddings") == found


def test_complex_parameters_are_described(run):
    def train():
        weights = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.cfloat))
        net = model()
        optimizer = torch.optim.Adam([weights, *net.parameters()])
        for images, labels in batches(4):
            (F.cross_entropy(net(images), labels) + weights.abs().sum()).backward()
            optimizer.step()

    assert run(train)[0].setup["optimizers"][0]["groups"][0]["complex"] == 1


def normed(samples, change=lambda net: None, accumulate=1):
    """A training of a network with batch norm, and this many samples per forward."""

    def train():
        net = model(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        net = change(net) or net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(
            torch.randn(12 * samples, 5), torch.randint(3, (12 * samples,))
        )
        for number, (images, labels) in enumerate(
            torch.utils.data.DataLoader(data, batch_size=samples)
        ):
            F.cross_entropy(net(images), labels).backward()
            if number % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()

    return train


def frozen(net):
    net[1].eval()


def ghosts(net):
    convert_ghost_batchnorm(net, 2)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_batch_norm_over_two_samples_is_a_mistake_however_many_an_update_has(run, accumulate):
    recorded, _ = run(normed(2, accumulate=accumulate))

    (finding,) = checks.run_checks(recorded)
    assert finding.rule_id == "few_samples_in_batch_norm"
    assert "1 batch norm layer normalizes with the statistics of 2 samples" in finding.message
    assert "SyncBatchNorm" not in finding.fix
    assert any("normalized one by one" in more for more in finding.fix_more) is (accumulate > 1)


@pytest.mark.parametrize(
    ("samples", "change"),
    [
        (8, lambda net: None),
        (2, frozen),
        (2, lambda net: torch.nn.Sequential(net[0], torch.nn.LayerNorm(8), net[2])),
        (16, ghosts),  # asked for
    ],
)
def test_batch_norm_that_is_frozen_or_has_samples_enough_is_no_mistake(run, samples, change):
    recorded, _ = run(normed(samples, change))

    assert checks.run_checks(recorded) == []


def test_two_rows_that_are_no_samples_are_not_taken_for_them(run):
    """A recommender is given users and items as the two rows of one tensor."""

    class Pairs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.known, self.norm = torch.nn.Embedding(9, 4), torch.nn.BatchNorm1d(4)

        def forward(self, pairs):
            return self.norm(self.known(pairs[0]) * self.known(pairs[1])).sum(1)

    def train():
        net = Pairs()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for (pairs,) in torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.randint(9, (160, 2))), batch_size=16
        ):
            net(pairs.T).square().mean().backward()
            optimizer.step()

    recorded, _ = run(train)

    assert recorded.setup["batch_norms"][0]["samples"] == 16
    assert checks.run_checks(recorded) == []


def test_a_ragged_last_batch_is_not_what_batch_norm_gets(run):
    def train():
        net = model(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for count in (2, 16, 16, 2):
            F.cross_entropy(net(torch.randn(count, 5)), torch.randint(3, (count,))).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert recorded.setup["batch_norms"][0]["samples"] == 16


def test_what_goes_wrong_inside_is_told_and_the_training_goes_on(run, monkeypatch):
    from feedline.profiler.taps.convergence.training_setup import TrainingSetup

    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(TrainingSetup, "optimizer", broken)

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(3):
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert recorded.curves == {}


def test_an_update_that_the_scaler_skips_is_counted_and_its_loss_is_not(run):
    def train():
        net, losses = model(), []
        optimizer, scaler = (
            torch.optim.SGD(net.parameters(), lr=0.1),
            torch.amp.GradScaler("cpu", init_scale=1024.0),
        )
        for number, (images, labels) in enumerate(batches(4)):
            loss = F.cross_entropy(net(images), labels) * (math.inf if number == 1 else 1)
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return losses

    recorded, losses = run(train)

    assert recorded.curves["train loss"].values.tolist() == [losses[0], *losses[2:]]
    assert recorded.setup["scaler"]["skipped"] == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch itself
def test_a_step_that_torch_compile_made_was_not_skipped_by_the_scaler(run):
    """No hook of an optimizer sees it; the first one overflows."""

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer.step = torch.compile(optimizer.step, backend="eager")
        for number, (images, labels) in enumerate(batches(4)):
            loss = F.cross_entropy(net(images), labels) * (math.inf if number == 0 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return scaler.get_scale()

    recorded, scale = run(train)

    assert scale == 512
    assert (recorded.updates, recorded.setup["scaler"]["skipped"]) == (0, 1)


def test_updates_that_only_overflow_were_skipped(run):
    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1e-44)  # falls to 0
        for images, labels in batches(8):
            scaler.scale(F.cross_entropy(net(images), labels) * math.nan).backward()
            scaler.step(optimizer)
            scaler.update()

    recorded, _ = run(train)

    assert (recorded.updates, recorded.setup["scaler"]["skipped"]) == (0, 8)


def test_a_scaler_that_is_switched_off_is_none(run):
    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        for images, labels in batches(4):
            scaler.scale(F.cross_entropy(net(images), labels)).backward()
            scaler.step(optimizer)
            scaler.update()

    recorded, _ = run(train)

    assert recorded.updates == len(recorded.curves["train loss"].values) == 4
    assert "scaler" not in recorded.setup


def test_two_losses_of_one_batch_are_not_two_micro_batches(run):
    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(8):
            output = net(images)
            (0.01 * F.cross_entropy(output, labels)).backward(retain_graph=True)
            F.cross_entropy(output, labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded, _ = run(train)

    assert recorded.norms is None


def test_what_is_computed_again_inside_backward_is_no_other_batch(run):
    from torch.utils.checkpoint import checkpoint

    def train():
        net = model(torch.nn.Linear(5, 8), torch.nn.Linear(8, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(4):
            hidden = checkpoint(net[0], images, use_reentrant=False)
            F.cross_entropy(torch.nn.Sigmoid()(net[1](hidden)), labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded, _ = run(train)

    assert recorded.samples == 2 * 4 * SAMPLES  # the two layers are outermost modules, once each


def test_losses_of_many_shapes_and_no_update_keep_nothing_alive(run):
    def train():
        net = model()
        for number in range(600):
            loss = net(torch.ones(SAMPLES, 5)).sum()
            (loss.reshape(1) if number % 2 else loss).backward()
        from feedline.profiler.record.recorder import recorder

        return len(recorder.convergence._loss)

    recorded, kept = run(train)

    assert kept == 256
    assert recorded.updates == 0


def test_gradients_in_float64_and_empty_ones_are_measured(run):
    def train():
        net = model().double()
        net.register_parameter("empty", torch.nn.Parameter(torch.zeros(0, dtype=torch.float64)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(6):
            for _ in range(2):
                (F.cross_entropy(net(images.double()), labels) + net.empty.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded, _ = run(train)

    np.testing.assert_allclose(recorded.norms.small_sq, recorded.norms.big_sq, rtol=1e-5)


def test_a_scheduler_that_is_gone_is_described_and_not_kept_alive(run):
    import gc
    import weakref

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
        data = torch.utils.data.TensorDataset(torch.randn(8, 5), torch.randint(3, (8,)))
        for images, labels in torch.utils.data.DataLoader(data, batch_size=4):
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            scheduler.step()
        gone = weakref.ref(net)
        del net, optimizer, scheduler, images, labels
        gc.collect()
        return gone()

    recorded, left = run(train)

    assert left is None
    assert recorded.setup["schedulers"][0]["horizon"] == 7


def test_a_program_that_updates_by_hand_and_names_a_number_like_ours_has_a_report(tmp_path):
    from feedline.analysis.explain.reports_of_run import recorded_report
    from feedline.profiler.store.trainings import open_run

    with feedline.record(tmp_path / "run"):
        for _ in range(4):
            feedline.metric("train loss", torch.ones(1, requires_grad=True))

    report = recorded_report(open_run(tmp_path / "run"))

    assert report.convergence is None


def test_a_loss_that_is_no_plain_tensor_is_not_asked_for_its_number(run):
    class Spread(torch.Tensor):
        """Stands for a DTensor, whose number may take a collective."""

        def item(self):
            raise AssertionError("it was asked")

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in batches(3):
            F.cross_entropy(net(images), labels).as_subclass(Spread).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert "train loss" not in recorded.curves
    assert "lr" in recorded.curves


def test_an_optimizer_that_has_no_learning_rate_is_recorded(run):
    class OwnRate(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"alpha": 0.1})

        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.sub_(parameter.grad, alpha=0.1)

    def train():
        net = model()
        optimizer = OwnRate(net.parameters())
        for images, labels in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()

    recorded, _ = run(train)

    assert recorded.updates == 6
