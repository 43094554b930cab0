"""Samples, epochs and samplers are those of the loader that feeds the training; rows that a model
is given are not taken for them.
"""

import itertools
import threading
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import feedline
from feedline.analysis.convergence.read_training import read
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run

SAMPLES = 24
DATA = TensorDataset(torch.randn(SAMPLES, 5), torch.randint(3, (SAMPLES,)))


@pytest.fixture
def report_of(tmp_path):
    """Record a training in this process; returns its report."""
    numbers = itertools.count()

    def recorded(train):
        folder = tmp_path / str(next(numbers))
        with feedline.record(folder, strict=True):
            train()
        return recorded_report(open_run(folder))

    return recorded


def linear(features=5):
    net = torch.nn.Linear(features, 3)
    return net, torch.optim.SGD(net.parameters(), lr=0.01)


def counts(report):
    made = report.convergence
    return report.throughput.steps, made.updates, made.samples, made.samples_per_epoch


def test_two_optimizers_that_take_turns_train_on_each_sample_once(report_of):
    def train():
        (one, first), (two, second) = linear(), linear()
        for images, _ in DataLoader(DATA, batch_size=4):
            for real in (images, torch.randn(4, 5)):
                one(real).sum().backward()
            first.step()
            (one(images) + two(images)).sum().backward()
            second.step()

    assert counts(report_of(train)) == (6, 12, 24, 24)


@pytest.mark.parametrize("turns", [True, False])
def test_the_batch_of_two_optimizers_is_known_before_the_training_ends(tmp_path, turns):
    with feedline.record(tmp_path / "run", strict=True):
        (one, first), (two, second) = linear(), linear()
        for images, _ in DataLoader(DATA, batch_size=4):
            (one(images) + two(images)).sum().backward()
            first.step()
            if turns:
                (one(images) + two(images)).sum().backward()
            second.step()
        live = read(tmp_path / "run")
    ended = read(tmp_path / "run")

    assert ("steps" in live.setup, "steps" in ended.setup) == (False, True)
    assert live.batch == ended.batch == 4
    assert live.step_s == pytest.approx(ended.step_s)


def test_a_batch_that_is_only_looked_at_before_the_training_is_no_sample_and_its_loader_is_unused(
    report_of,
):
    def train():
        net, optimizer = linear()
        print(next(iter(DataLoader(DATA, batch_size=6)))[0].shape)
        for _ in range(2):
            for images, labels in DataLoader(DATA, batch_size=4):
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()

    report = report_of(train)

    assert counts(report) == (12, 12, 48, 24)
    assert report.throughput.samples == 48 and report.step.evaluation_s == 0
    assert [(loader.role, loader.samples) for loader in report.loaders] == [
        ("unused", 6),
        ("training", 48),
    ]


def test_a_batch_that_the_trainings_own_iterator_gave_before_the_first_step_is_no_sample(report_of):
    """As StarGAN takes the pictures that it shows what it has learned with."""

    def train():
        net, optimizer = linear()
        batches = iter(DataLoader(DATA, batch_size=4))
        shown, _ = next(batches)
        for images, labels in batches:
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
        net(shown)

    report = report_of(train)

    assert counts(report)[:3] == (5, 5, 20)
    assert report.throughput.samples == 20 and report.throughput.batch_size == 4


def test_a_first_update_that_is_left_out_leaves_its_batch_among_the_samples(report_of):
    """As a gradient scaler does, whose first scales overflow."""

    def train():
        net, optimizer = linear()
        for number, (images, labels) in enumerate(DataLoader(DATA, batch_size=4)):
            F.cross_entropy(net(images), labels).backward()
            if number:
                optimizer.step()

    assert report_of(train).throughput.samples == 24


def test_two_loaders_that_feed_each_step_together_both_train(report_of):
    def train():
        net, optimizer = linear()
        for (left, labels), (right, _) in zip(
            DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=4), strict=True
        ):
            F.cross_entropy(net(left) + net(right), labels).backward()
            optimizer.step()

    assert {loader.role for loader in report_of(train).loaders} == {"training"}


def ahead(loader):
    """Fetch one batch ahead to know which one is the last, as accelerate does."""
    batches = iter(loader)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


def test_a_batch_that_was_fetched_ahead_and_never_trained_on_is_no_sample(report_of):
    def train():
        net, optimizer = linear()
        for step, (images, labels) in enumerate(ahead(DataLoader(DATA, batch_size=4)), 1):
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            if step == 4:
                break

    report = report_of(train)

    assert counts(report) == (4, 4, 16, 24)
    assert report.throughput.samples == 16 and report.throughput.batch_size == 4


def test_an_evaluation_in_the_middle_of_an_epoch_that_is_fetched_ahead_takes_none_of_its_samples_and_loses_none_of_its_own(
    report_of,
):
    def train():
        net, optimizer = linear()
        training, others = DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=8)
        for _ in range(2):
            for step, (images, labels) in enumerate(ahead(training), 1):
                F.cross_entropy(net.train()(images), labels).backward()
                optimizer.step()
                if step % 2 == 0:
                    with torch.no_grad():
                        for seen, _ in ahead(others):
                            net.eval()(seen)

    report = report_of(train)

    assert counts(report) == (12, 12, 48, 24)
    assert [(loader.role, loader.samples) for loader in report.loaders] == [
        ("training", 48),
        ("evaluation", 6 * 24),
    ]
    assert report.step.evaluation_s > 0 and report.throughput.batch_size == 4


def test_a_batch_at_which_each_epoch_breaks_off_is_no_sample(report_of):
    def train():
        net, optimizer = linear()
        loader = DataLoader(DATA, batch_size=4)
        for _ in range(3):
            for step, (images, labels) in enumerate(loader):
                if step == 4:
                    break
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()

    assert counts(report_of(train)) == (12, 12, 48, 24)


def test_two_loaders_that_feed_one_backward_keep_all_of_their_samples_to_the_end(report_of):
    def train():
        net, optimizer = linear()
        for (left, labels), (right, _) in zip(
            ahead(DataLoader(DATA, batch_size=4)), ahead(DataLoader(DATA, batch_size=2))
        ):
            F.cross_entropy(net(left)[:2] + net(right), labels[:2]).backward()
            optimizer.step()

    assert (
        report_of(train).throughput.samples == 24 + 12
    )  # the second loader is left after 6 of its 12 batches


@pytest.mark.parametrize("batches", [1, 3])
def test_layers_that_train_one_after_another_make_a_step_of_each_update(report_of, batches):
    def train():
        layers = [linear(5), linear(5)]
        for images, _ in DataLoader(DATA, batch_size=24 // batches):
            for net, optimizer in layers:
                for _ in range(10):
                    net(images).sum().backward()
                    optimizer.step()

    report = report_of(train)

    assert (report.throughput.steps, report.convergence.updates, report.throughput.samples) == (
        20 * batches,
        20 * batches,
        24,
    )


def test_an_optimizer_that_makes_every_second_update_is_in_the_steps_of_the_other(report_of):
    def train():
        (critic, first), (actor, second) = linear(), linear()
        for step in range(12):
            critic(torch.randn(4, 5)).sum().backward()
            first.step()
            if step % 2:
                actor(torch.randn(4, 5)).sum().backward()
                second.step()

    report = report_of(train)

    assert (report.throughput.steps, report.convergence.updates) == (12, 18)


def test_nodes_of_graphs_are_not_samples(report_of):
    class Graphs:
        def __init__(self, graphs):
            self.x = torch.cat([graph.expand(7, 5) for graph, _ in graphs])

    def train():
        net, optimizer = linear()
        for _ in range(4):
            for batch in DataLoader(DATA, batch_size=4, shuffle=True, collate_fn=Graphs):
                net(batch.x).sum().backward()
                optimizer.step()

    assert counts(report_of(train)) == (24, 24, 4 * 24, 24)


def test_what_a_model_is_given_without_a_loader_has_an_unknown_number_of_samples(report_of):
    def train():
        net, optimizer = linear()
        for _ in range(8):
            F.cross_entropy(
                net(torch.randn(35, 2, 5)).flatten(0, 1), torch.zeros(70, dtype=torch.long)
            ).backward()
            optimizer.step()

    report = report_of(train)

    assert counts(report) == (8, 8, None, None)
    assert report.throughput.samples == 0


def test_a_model_that_is_given_no_tensor_trains_on_what_the_loader_hands_over(report_of):
    class OfFeatures(torch.nn.Linear):
        def forward(self, features):
            return super().forward(features[0]["image"])

    def train():
        net = OfFeatures(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for images, _ in DataLoader(DATA, batch_size=4):
            net([{"image": images}]).sum().backward()
            optimizer.step()

    assert counts(report_of(train)) == (6, 6, 24, 24)


def test_batches_that_are_fetched_ahead_for_accumulation_are_counted_once(report_of):
    def train():
        net, optimizer = linear()
        batches = iter(DataLoader(DATA, batch_size=4))
        for _ in range(3):
            for images, labels in [next(batches), next(batches)]:
                F.cross_entropy(net(images), labels).backward()
            optimizer.step()

    assert counts(report_of(train)) == (3, 3, 24, 24)


def test_an_evaluation_on_the_training_loader_is_no_epoch(report_of):
    def train():
        net, optimizer = linear()
        loader = DataLoader(DATA, batch_size=4)
        for _ in range(2):
            net.train()
            for images, labels in loader:
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                for images, _ in loader:
                    net(images)

    assert counts(report_of(train)) == (12, 12, 48, 24)


def test_a_data_set_that_was_loaded_in_one_batch_says_nothing_of_samples(report_of):
    def train():
        net, optimizer = linear()
        ((images, labels),) = DataLoader(DATA, batch_size=SAMPLES)
        for _ in range(3):
            for at in range(0, SAMPLES, 4):
                F.cross_entropy(net(images[at : at + 4]), labels[at : at + 4]).backward()
                optimizer.step()

    assert report_of(train).convergence.samples is None


@pytest.mark.parametrize("called", [True, False])
def test_only_the_sampler_that_feeds_the_training_needs_set_epoch(report_of, called):
    def train():
        net, optimizer = linear()
        training, test = (
            DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 1, 0)) for _ in range(2)
        )
        for epoch in range(3):
            net.train()
            if called:
                training.sampler.set_epoch(epoch)
            for images, labels in training:
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                for images, _ in test:
                    net(images)

    checks = {finding.rule_id for finding in report_of(train).convergence.checks}

    assert ("missing_set_epoch" in checks) is not called


def test_a_loader_in_a_thread_of_its_own_feeds_the_training(report_of):
    """As MONAI's ThreadDataLoader does it."""

    class ThreadLoader(DataLoader):
        def __iter__(self):
            batches, source = deque(), super().__iter__()
            thread = threading.Thread(target=lambda: batches.extend(source))
            thread.start()
            thread.join()
            yield from batches

    def train():
        net, optimizer = linear()
        loader = ThreadLoader(DATA, batch_size=4)
        for _ in range(3):
            for images, labels in loader:
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()

    report = report_of(train)

    assert counts(report) == (18, 18, 72, 24)
    assert report.throughput.samples == 72
    assert [loader.role for loader in report.loaders] == ["training"]
    assert report.step.evaluation_s == 0
    (unseen,) = [finding for finding in report.findings if finding.rule_id == "input_not_seen"]
    assert unseen.message.startswith("ThreadLoader is iterated in another thread,")


def test_a_look_at_a_batch_and_an_evaluation_on_the_training_data_are_no_epochs(report_of):
    def train():
        net, optimizer = linear()
        loader = DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 1, 0))
        next(iter(loader))
        loader.sampler.set_epoch(0)
        for images, labels in loader:
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            for images, _ in loader:
                net(images)

    checks = {finding.rule_id for finding in report_of(train).convergence.checks}

    assert "missing_set_epoch" not in checks


@pytest.mark.parametrize("losses", [1, 2])
def test_optimizers_that_update_in_one_step_share_its_batch(report_of, losses):
    """Of a backbone and a head with one loss, and of two models with a loss each."""

    def train():
        (one, first), (two, second) = linear(), linear(3)
        for images, labels in itertools.chain(*[DataLoader(DATA, batch_size=4)] * 3):
            F.cross_entropy(two(one(images)), labels).backward()
            first.step()
            if losses > 1:
                F.cross_entropy(two(one(images)), labels).backward()
            second.step()

    report = report_of(train)

    assert report.convergence.price.batch == 4


def test_of_optimizers_that_take_turns_the_rate_is_that_of_the_one_that_began(report_of):
    def train():
        (one, first), (two, second) = linear(), linear()
        second.param_groups[0]["lr"] = 1.0
        decay = torch.optim.lr_scheduler.StepLR(first, 3, 0.5)
        for images, _ in DataLoader(DATA, batch_size=4):
            (one(images) + two(images)).sum().backward()
            first.step()
            second.step()
            decay.step()

    (rate,) = [curve for curve in report_of(train).convergence.curves if curve.name == "lr"]

    assert rate.values == pytest.approx([0.01, 0.005])


def test_of_optimizers_one_after_another_each_rate_is_recorded_from_its_first_update(tmp_path):
    with feedline.record(tmp_path / "run", strict=True):
        net, first = linear()
        second = torch.optim.Adam(net.parameters(), lr=0.5)
        for optimizer in (first, second):
            for images, _ in DataLoader(DATA, batch_size=4):
                net(images).sum().backward()
                optimizer.step()

    (rate,) = [
        curve
        for curve in recorded_report(open_run(tmp_path / "run")).convergence.curves
        if curve.name == "lr"
    ]
    assert (rate.updates, rate.values) == ([0, 6], pytest.approx([0.01, 0.5]))


def test_what_a_closure_computes_again_is_no_micro_batch(report_of):
    losses = []

    def train():
        net = torch.nn.Linear(5, 1)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
        for images, labels in DataLoader(DATA, batch_size=8):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(net(images)[:, 0], labels.float())  # noqa: B023
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())

    curves = report_of(train).convergence.curves
    (loss,) = [curve for curve in curves if curve.name == "train loss"]

    assert loss.values == pytest.approx(losses[:2])  # the last one has no update behind it
