"""Input that stays in memory is recognized, also of models without arguments, by real trainings."""

import itertools
import time
import warnings

import numpy as np
import pytest
import torch
from own_code.loops import ROWS, finding, train
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import inside
from feedline.profiler.taps.own_code import producers
from feedline.profiler.taps.own_code.producers import ResidentInput

GRAPH = np.random.RandomState(0).randn(300, 8).astype(np.float32)


def always_the_same(x):
    return 20 * [x]


def views_of(x):
    return [x[8 * number : 8 * number + 64] for number in range(20)]


def a_sparse_one(x):
    return 20 * [x.to_sparse()]


def refilled_by_numpy(x):
    """Rows with zeros at both ends, as of padded texts and of pictures with a border."""
    buffer = np.zeros((300, 64), np.float32)
    given = torch.from_numpy(buffer)
    for number in range(20):
        buffer[:, 8:24] = np.random.RandomState(number).randn(300, 16)
        yield given[:, 8:16]


def refilled_by_torch(x):
    return (x.copy_(torch.randn(x.shape)) for _ in range(20))


def refilled_unnoticed(x):
    return (x.data.copy_(torch.randn(x.shape)) for _ in range(20))


def passed_on_by_a_module(x):
    same = torch.nn.Identity()
    return (same(x.copy_(torch.randn(x.shape))) for _ in range(20))


def features_of_a_frozen_model(x):
    backbone = torch.nn.Linear(8, 8).eval()
    for _ in range(20):
        with torch.no_grad():
            features = backbone(torch.randn(x.shape))
        yield features


def augmented_by_a_module(x):
    augment = torch.nn.Dropout(0.1)
    return (augment(x) for _ in range(20))


def chosen_by_an_index(x):
    return (x[torch.randperm(len(x))[:64]] for _ in range(20))


def trained_on(inputs):
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for x in inputs:
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)  # what no stage accounts for may be input, as far as feedline can tell


RESIDENT = [
    (always_the_same, torch.tensor),
    (views_of, torch.tensor),
    (always_the_same, torch.from_numpy),
    (a_sparse_one, torch.tensor),
]


@pytest.mark.parametrize(("kind", "of"), RESIDENT)
def test_tensors_that_stay_in_memory_are_no_work_for_the_input(kind, of, recorded):
    report, _ = recorded(lambda: trained_on(kind(of(GRAPH))))

    assert finding(report, "compute_bound").message.startswith("no batch has to be loaded")
    assert report.step.stages["other"] > 0.5 * report.step.mean_s


class TakesItsData(torch.nn.Module):
    """Called without arguments, as in several examples of PyG.

    The layer makes something new of the data before its own weights.
    """

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.inner(x * 2)

    def __init__(self, data, dropout=False):
        super().__init__()
        self.data, self.dropout, self.layers = (
            data,
            dropout,
            torch.nn.ModuleList([self.Layer(), self.Layer()]),
        )

    def forward(self):
        x = next(self.data)
        for layer in self.layers:
            x = layer(torch.nn.functional.dropout(x, 0.1) if self.dropout else x)
        return x


def trained_without_arguments(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(20):
        model().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model.eval()()
        model.train()
        time.sleep(0.002)


def test_a_model_without_arguments_that_takes_the_same_data_has_none_to_load(recorded):
    report, _ = recorded(
        lambda: trained_without_arguments(TakesItsData(itertools.repeat(torch.tensor(GRAPH))))
    )

    assert finding(report, "compute_bound").message.startswith("no batch has to be loaded")


@pytest.mark.parametrize("dropout", [False, True])
def test_a_model_without_arguments_that_takes_or_makes_new_data_stays_unknown(dropout, recorded):
    same = torch.tensor(GRAPH)
    data = itertools.repeat(same) if dropout else (same * number for number in range(40))

    report, _ = recorded(lambda: trained_without_arguments(TakesItsData(data, dropout)))

    assert not finding(report, "compute_bound")


def test_a_model_without_arguments_whose_layer_fails_leaves_the_next_one_alone(recorded):
    def fails():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            TakesItsData(itertools.repeat(torch.rand(2, 3)))()
        assert inside.takes is None
        trained_on(always_the_same(torch.tensor(GRAPH)))

    report, _ = recorded(fails)

    assert finding(report, "compute_bound").message.startswith("no batch has to be loaded")


class GivesAwayData(torch.nn.Module):
    """Gives its layer the same features, and something else that is new."""

    def __init__(self, others):
        super().__init__()
        self.same, self.others, self.layer = torch.tensor(GRAPH), others, Layer()

    def forward(self):
        return self.layer(self.same, next(self.others))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x, other):
        return self.inner(x)


class Graph:
    """Edges in a class of a library's own."""


OTHERS = {
    "leaves with gradients": lambda: torch.rand(4, requires_grad=True),
    "objects": Graph,
    "texts": lambda: "cats",
    "packed sequences": lambda: torch.nn.utils.rnn.pack_sequence([torch.rand(3, 2)]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_plain_tensor_may_be_data(kind, recorded):
    report, _ = recorded(lambda: trained_without_arguments(GivesAwayData(iter(OTHERS[kind], None))))

    assert not finding(report, "compute_bound")


def test_a_wrapped_model_without_arguments_is_looked_into(recorded):
    class Wrapped(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.module = model

        def forward(self):
            return self.module()

    report, _ = recorded(
        lambda: trained_without_arguments(
            Wrapped(TakesItsData(itertools.repeat(torch.tensor(GRAPH))))
        )
    )

    assert finding(report, "compute_bound").message.startswith("no batch has to be loaded")


def test_batches_of_a_loader_are_not_taken_for_data_after_a_call_without_arguments(recorded):
    model, same = TakesItsData(itertools.repeat(torch.tensor(GRAPH))), Layer()

    def loaded():
        optimizer = torch.optim.SGD(same.parameters(), lr=0.01)
        model()
        for (x,) in DataLoader(TensorDataset(torch.rand(80, 8)), batch_size=4):
            same(x, None).sum().backward()
            optimizer.step()
            assert inside.takes is None

    _, main = recorded(loaded)

    forwards = main.of(Stage.FORWARD)
    assert not (forwards["flags"][1:] & Flag.RESIDENT).any()


def test_a_warning_of_a_layer_names_the_line_that_it_did(recorded):
    class Warns(torch.nn.Module):
        def forward(self, x):
            warnings.warn("old", stacklevel=4)
            return x

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Warns()

        def forward(self):
            return self.layer(torch.rand(2))

    def warned():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            Model()()
        return told[0].filename, told[0].lineno

    before, found = warned(), []
    recorded(lambda: found.append(warned()))

    assert found == [before]


FREED = """
import torch

def shrunken(size):
    x = torch.rand(4096)[2:]
    x.untyped_storage().resize_(size)
    return x

layer = torch.nn.Identity()
for size in (0, 64):
    layer(shrunken(size))
torch.func.functionalize(lambda x: layer(x[1:]))(torch.rand(4096))
"""


def test_a_tensor_whose_memory_was_freed_is_not_read(tmp_path, warm_python):
    (tmp_path / "freed.py").write_text(FREED)

    done = warm_python.run(
        "-m", "feedline", "run", "-q", "-o", tmp_path / "run", "freed.py", folder=tmp_path
    )

    assert done.returncode == 0, done.stderr


FILLED = [
    refilled_by_numpy,
    refilled_by_torch,
    refilled_unnoticed,
    passed_on_by_a_module,
    features_of_a_frozen_model,
]
FILLED += [augmented_by_a_module, chosen_by_an_index]


@pytest.mark.parametrize("kind", FILLED)
def test_input_that_is_new_in_each_step_stays_unknown(kind, recorded):
    report, _ = recorded(lambda: trained_on(kind(torch.tensor(GRAPH))))

    assert not finding(report, "compute_bound")


def test_memory_that_was_the_same_for_long_is_read_in_few_calls_and_a_change_is_noticed(
    monkeypatch,
):
    reads, words = [], producers._words
    monkeypatch.setattr(producers, "_words", lambda tensor: reads.append(0) or words(tensor))
    values = np.zeros(4096, dtype=np.float32)
    tensor, looked = torch.from_numpy(values), ResidentInput()
    again = [looked.fed(tensor) for _ in range(200)]
    of_the_same = len(reads)

    values += 1  # torch's version of it stays the same
    later = [looked.fed(tensor) for _ in range(producers._READ_EVERY)]

    assert again == [False] + [True] * 199
    assert of_the_same <= producers._SURE + 1 + 200 // producers._READ_EVERY
    assert later.count(False) == 1
    tensor += 1
    assert not looked.fed(tensor)


def test_models_that_get_again_what_is_new_in_the_step_are_not_looked_at_for_long(
    recorded, monkeypatch
):
    """As the networks of an actor-critic do: looking at what they got took 1.5 ms of a step of 6
    ms.
    """
    calls, fed = [], ResidentInput.fed
    monkeypatch.setattr(ResidentInput, "fed", lambda *given: calls.append(0) or fed(*given))

    def step(model):
        x = torch.randint(60, (ROWS, 8))
        return sum(model(x).square().mean() for _ in range(4))

    recorded(lambda: train(step, 100))

    assert 4 < len(calls) <= 4 * (producers._MAX_NEW_STEPS + 1)


def test_a_stage_that_the_program_names_may_be_input(recorded):
    x = torch.tensor(GRAPH)

    def loads(number):
        with feedline.stage("load"):
            time.sleep(0.04)
        return x * number

    report, _ = recorded(lambda: trained_on(loads(number) for number in range(20)))

    assert report.step.stages["load"] > 0.5 * report.step.mean_s and not finding(
        report, "compute_bound"
    )


def test_a_model_traced_by_jit_warns_of_nothing_more(recorded):
    layer = torch.nn.Linear(8, 8)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.trace", DeprecationWarning)
        recorded(lambda: torch.jit.trace(layer, torch.from_numpy(GRAPH)))
