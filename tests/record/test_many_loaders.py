"""Programs that make very many loaders: one for each client, or for each state of a replay buffer."""

import json

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import feedline
from feedline.profiler.events import Stage
from feedline.profiler.session import session
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps import loader as loader_tap
from feedline.profiler.taps.convergence.training_setup import TrainingSetup


def loaders_of(folder):
    return json.loads((folder / "rank0" / "manifest.json").read_text())["loaders"]


def test_each_new_loader_costs_the_less_the_more_there_are(tmp_path, monkeypatch):
    write, written, most = Manifest.write, [], 100
    monkeypatch.setattr(
        Manifest, "write", lambda *args: (written.append(len(args[0].loaders)), write(*args))
    )
    monkeypatch.setattr(loader_tap, "_MAX_LOADERS", most)
    monkeypatch.setattr(session, "_UNWRITTEN_NS", 10**15)

    with feedline.record(tmp_path / "run"):
        kept = []
        for number in range(1, 2 * most):
            kept.append(DataLoader(TensorDataset(torch.ones(number, 2)), batch_size=4))
            list(kept[-1])
            if number <= 20:
                assert len(loaders_of(tmp_path / "run")) == number
        list(DataLoader(torch.ones(8, 2), batch_size=2))
        list(kept[0])

    assert len([number for number in written if number > 20]) < 40
    assert len(loaders_of(tmp_path / "run")) == most
    begun = open_run(tmp_path / "run").ranks[0].main.of(Stage.EPOCH)
    passes = list(zip(begun["source"].tolist(), begun["number"].tolist()))
    assert len(set(passes)) == len(passes) == 2 * most + 1
    assert passes[-1] == (0, 1)
    assert {number for number, _ in passes[most:-1]} == {most - 1}


def test_a_while_after_the_last_time_a_loader_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_UNWRITTEN_NS", -1)
    with feedline.record(tmp_path / "run"):
        for number in range(1, 50):
            list(DataLoader(TensorDataset(torch.ones(number, 2)), batch_size=4))
            assert len(loaders_of(tmp_path / "run")) == number


class Epoch:
    """A value of set_epoch."""

    alive = 0

    def __init__(self):
        Epoch.alive += 1

    def __del__(self):
        Epoch.alive -= 1


def test_passes_with_an_epoch_each_are_counted_and_few_epochs_are_kept():
    setup = TrainingSetup()
    sampler = DistributedSampler(torch.ones(8), num_replicas=2, rank=0)
    batches = DataLoader(torch.ones(8), sampler=sampler)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    for _ in range(500):
        sampler.set_epoch(Epoch())
        for _ in range(2):
            setup._iterated(batches, None)
            setup.optimizer(optimizer)

    (passes,) = setup.found("")["samplers"]
    assert (passes["epochs"], passes["distinct"]) == (1000, 500)
    assert Epoch.alive < 200
