"""Long trainings, of which some windows of steps were forgotten."""

import itertools
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import feedline
from feedline.analysis.explain.measured import measure
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.trainings import open_run

EPOCHS, STEPS = 1500, 2
PASSES, TRAINING, VALIDATION = 12, 200, 50
MAKING_S = 0.0006  # of a batch, so that neither load nor the machine decides what is told


@pytest.fixture
def small(monkeypatch):
    """Segments of a 32nd of the usual size."""
    monkeypatch.setenv("FEEDLINE_RESTS", "0")
    _make_smaller(monkeypatch, 32)


def test_all_of_its_steps_and_samples_are_counted(small, tmp_path):
    """Epochs are short: a window of steps begins with each of them."""
    net, optimizer = _model()
    loader = _loader(STEPS, 16)
    with feedline.record(tmp_path / "run"):
        for _ in range(EPOCHS):
            for (batch,) in loader:
                optimizer.zero_grad()
                net(batch).mean().backward()
                optimizer.step()
    run = open_run(tmp_path / "run")
    report = recorded_report(run)
    told, (of_loader,) = report.throughput, report.loaders

    assert run.ranks[0].main.stride > 1, "nothing was forgotten"
    assert told.steps == pytest.approx(EPOCHS * STEPS, rel=0.01)
    assert told.samples == pytest.approx(16 * EPOCHS * STEPS, rel=0.01)
    assert of_loader.epochs == pytest.approx(EPOCHS, rel=0.01)
    assert of_loader.batches == pytest.approx(EPOCHS * STEPS, rel=0.01)
    assert of_loader.samples == pytest.approx(16 * EPOCHS * STEPS, rel=0.01)
    assert of_loader.objects == 1
    assert "epoch_start" in report.step.stages, "no step with which a pass begins was kept"


def _validating_each_epoch():
    net, optimizer = _model()
    training, validation = _slow_loader(TRAINING), _slow_loader(VALIDATION)
    for _ in range(PASSES):
        with feedline.stage("a pass"):  # longer than all of its windows
            _train(net, optimizer, training)
        _validate(net, validation)


def _validating_amid_a_pass():
    """Nothing that is always kept tells that the training goes on."""
    net, optimizer = _model()
    batches, validation = iter(_slow_loader(PASSES * TRAINING)), _slow_loader(VALIDATION)
    for _ in range(PASSES):
        _train(net, optimizer, itertools.islice(batches, TRAINING))
        _validate(net, validation)


@pytest.mark.parametrize(
    "program, passes", [(_validating_each_epoch, PASSES), (_validating_amid_a_pass, 1)]
)
def test_the_same_is_told_as_of_a_run_of_which_all_was_kept(program, passes, tmp_path, monkeypatch):
    monkeypatch.setenv("FEEDLINE_RESTS", "0")
    runs = {}
    for name, part in (("all", 1), ("some", 16)):
        with monkeypatch.context() as smaller:
            _make_smaller(smaller, part)
            with feedline.record(tmp_path / name):
                program()
        runs[name] = open_run(tmp_path / name)
    strides = {name: run.ranks[0].main.stride for name, run in runs.items()}
    every, some = (recorded_report(run) for run in runs.values())

    assert strides["all"] == 1 and strides["some"] >= 4, "too little was forgotten"
    assert every.loaders[0].epochs == passes
    for one, exact in zip(some.loaders, every.loaders):
        assert one.role == exact.role
        assert one.batches == pytest.approx(exact.batches, rel=0.03)
        assert one.samples == pytest.approx(exact.samples, rel=0.03)
        assert one.epochs == pytest.approx(exact.epochs, rel=0.1)
    assert some.throughput.steps == every.throughput.steps == PASSES * TRAINING
    assert some.step.evaluations == pytest.approx(every.step.evaluations, rel=0.1)
    shares = [report.ledger.run.share("evaluation") for report in (some, every)]
    assert shares[0] == pytest.approx(shares[1], rel=0.2)
    evaluating = [report.step.evaluating_s for report in (some, every)]
    assert evaluating[0] == pytest.approx(evaluating[1], rel=0.3)
    assert some.ledger.run.closes
    assert some.ledger.run.share("between") < 0.15, "forgotten time is told as between steps"
    assert some.findings[0].rule_id == every.findings[0].rule_id


def test_steps_longer_than_a_window_are_counted(small, tmp_path):
    """Accumulation over 128 batches: no kept window holds all of a step."""
    net, optimizer = _model()
    loader = _loader(24 * 128, 4)
    with feedline.record(tmp_path / "run"):
        for number, (batch,) in enumerate(loader, 1):
            net(batch).mean().backward()
            if number % 128 == 0:
                optimizer.step()
                optimizer.zero_grad()
    run = open_run(tmp_path / "run")
    report = recorded_report(run)

    assert run.ranks[0].main.stride > 1, "nothing was forgotten"
    assert report.throughput.steps == 24
    assert report.throughput.steps_per_s > 0
    assert report.throughput.batch_size == pytest.approx(512, rel=0.01)
    assert "longer than the windows of 64 batches" in str(report.verdict)


def test_two_optimizers_of_each_step_and_its_new_loaders_are_known(small, tmp_path):
    nets = [_model(), _model()]
    with feedline.record(tmp_path / "run"):
        for _ in range(400):
            for (batch,) in _loader(4, 4):
                sum(net(batch).mean() for net, _ in nets).backward()
                for _, optimizer in nets:
                    optimizer.step()
                    optimizer.zero_grad()
    run = open_run(tmp_path / "run")
    facts = measure(run).facts

    assert run.ranks[0].main.stride > 1, "nothing was forgotten"
    assert facts.updated is not None and facts.updated.kind == "SGD"
    assert facts.loader_made_again


def _make_smaller(monkeypatch, times):
    *others, capacity = Segment.__init__.__defaults__
    monkeypatch.setattr(Segment.__init__, "__defaults__", (*others, capacity // times))


def _model():
    net = torch.nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def _loader(batches, batch_size, **settings):
    data = TensorDataset(torch.randn(batches * batch_size, 4))
    return DataLoader(data, batch_size=batch_size, **settings)


def _slow_loader(batches):
    return _loader(batches, 4, collate_fn=_collate_slowly)


def _collate_slowly(samples):
    time.sleep(MAKING_S)
    return default_collate(samples)


def _train(net, optimizer, batches):
    for (batch,) in batches:
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()


def _validate(net, batches):
    with torch.no_grad():
        for (batch,) in batches:
            net(batch)
